// Command drill plays with the whole payout system on this machine and says what came of it.
//
//	drill demo          run it from beginning to end: 50 accounts, 500 payouts, three executors
//	drill experiment    the fencing experiment: each position of the two switches, 20 runs
//	drill outage        stop the lock server for 30 s in the middle, once in good order and once by SIGKILL
//
// The flag --backend says where the locks are kept: etcd (the default) or postgres. Nothing else depends on it. The
// exit code is 0 only if everything was as it must be. PostgreSQL is found as tests find it: see package testenv.
package main
