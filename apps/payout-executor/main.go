// Command payout-executor executes payouts, each under the fenced lock of its account.
//
//	payout-executor [--config FILE] [--KEY=VALUE ...]    execute payouts until SIGTERM or SIGINT
//	payout-executor config [...]                         print the configuration that would be used
//	payout-executor reconcile [--json] [...]             compare payouts, submissions, ledger and rail, once
//	payout-executor version                              print the version
package main

import (
	"os"
	"runtime/debug"

	"github.com/fencelock/fencelock/apps/payout-executor/config"
	"github.com/fencelock/fencelock/apps/payout-executor/internal/executor"
	"github.com/fencelock/fencelock/apps/program"
)

// gcPercent is how much garbage there may be before it is collected, unless GOGC says otherwise: what lives is small, and a
// collection is quick.
const gcPercent = 50

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	payoutExecutor().Main()
}

func payoutExecutor() program.Program[config.Config] {
	return program.Program[config.Config]{
		Name: "payout-executor", Load: config.Load, Usage: config.Usage, Graph: executor.Graph,
		Commands: []program.Command[config.Config]{{Name: "reconcile", Main: executor.Reconcile}},
	}
}
