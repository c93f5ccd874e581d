// Command payout-executor executes payouts, each under the fenced lock of its account.
package main

func main() {}
