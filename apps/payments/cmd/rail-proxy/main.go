// Command rail-proxy stands before a payment rail, and sends each payout to it at most once.
//
//	rail-proxy [--config FILE] [--KEY=VALUE ...]    serve until SIGTERM or SIGINT
//	rail-proxy config [...]                         print the configuration that would be used
//	rail-proxy version                              print the version
package main

import "github.com/fencelock/fencelock/apps/payments/internal/graph"

func main() { graph.Proxy().Main() }
