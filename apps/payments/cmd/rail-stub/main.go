// Command rail-stub plays a payment rail that executes every transfer that arrives, also the second one of a payout.
//
//	rail-stub [--config FILE] [--KEY=VALUE ...]    serve until SIGTERM or SIGINT
//	rail-stub config [...]                         print the configuration that would be used
//	rail-stub version                              print the version
package main

import "github.com/fencelock/fencelock/apps/payments/internal/graph"

func main() { graph.Stub().Main() }
