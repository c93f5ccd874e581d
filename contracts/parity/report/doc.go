// Command report compares runs of the parity suite with the suite and so with each other, and keeps docs/parity.md.
//
// Each argument is name=file, where the file has what `go test -json` printed. A run says itself on which
// store it was, by a line "store: etcd 3.7" in the output of its entry point; without one it goes by its name. There may be
// several runs of one backend, on several versions. The command prints a line per subtest and a column per run, and
// fails if a subtest failed, was skipped or did not run, or if one ran that the suite does not have: a suite
// that quietly runs less on one backend is no claim of parity.
//
// With -write FILE it also brings the document up to date, and with -check FILE it fails where -write would
// change it, unless that is only for a version of a store that the document has in others: where tests take the server that is
// there, it need not be one that somebody has written. Both replace the columns of the stores that were run and leave those of
// others, so one run of one version can be checked by itself, as CI does. To drop a column, delete the file and write it anew.
//
// From the root of the repository, as `make parity` does with the default version of each store:
//
//	go test -json -count=1 -run '^TestReference$' ./contracts/parity >bin/parity/reference.json
//	go test -json -count=1 -run '^TestParity$' ./adapters/etcd >bin/parity/etcd.json
//	go test -json -count=1 -run '^TestParity$' ./adapters/postgres >bin/parity/postgres.json
//	go run ./contracts/parity/report -check docs/parity.md reference=bin/parity/reference.json \
//	    etcd=bin/parity/etcd.json postgres=bin/parity/postgres.json
//
// and `make fix-parity` with -write in the place of -check, after a change of the suite. On another version of a store:
//
//	FENCELOCK_TEST_POSTGRES_VERSION=14 go test -json -count=1 -run '^TestParity$' ./adapters/postgres >bin/parity/postgres-14.json
//	go run ./contracts/parity/report -write docs/parity.md postgres=bin/parity/postgres-14.json
package main
