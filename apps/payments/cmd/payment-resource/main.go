// Command payment-resource keeps accounts, payouts and the ledger: the resource that locks of accounts protect.
//
//	payment-resource [--config FILE] [--KEY=VALUE ...]    serve until SIGTERM or SIGINT
//	payment-resource config [...]                         print the configuration that would be used
//	payment-resource version                              print the version
package main

import "github.com/fencelock/fencelock/apps/payments/internal/graph"

func main() { graph.Payment().Main() }
