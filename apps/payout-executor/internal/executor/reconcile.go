package executor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fencelock/fencelock/adapters/client"
	"github.com/fencelock/fencelock/apps/payout-executor/config"
	"github.com/fencelock/fencelock/apps/payout-executor/internal/locks"
	"github.com/fencelock/fencelock/apps/payout-executor/internal/payout"
	"github.com/fencelock/fencelock/apps/payout-executor/internal/reconcile"
	"github.com/fencelock/fencelock/apps/payout-executor/internal/remote"
	"github.com/fencelock/fencelock/apps/payout-executor/internal/telemetry"
	"github.com/fencelock/fencelock/apps/program"
	"github.com/fencelock/fencelock/apps/program/settings"
)

// ExitNotCompared is the exit code of a comparison that could not be made, beside those of [reconcile.Report.ExitCode] and
// [program.ExitConfig].
const ExitNotCompared = 4

// flagJSON is the one flag of the command that is no key.
const flagJSON = "--json"

// Reconcile is the command: it compares once and prints the report.
func Reconcile(ctx context.Context, args, env []string, stdout, stderr io.Writer) int {
	complain := func(err error) { _, _ = fmt.Fprintf(stderr, "payout-executor: reconcile: %s\n", settings.Line(err)) }
	rest := slices.DeleteFunc(slices.Clone(args), func(arg string) bool { return arg == flagJSON })
	cfg, err := config.Load(rest, env)
	if errors.Is(err, settings.ErrHelp) {
		_, _ = fmt.Fprintf(stdout, "Usage: payout-executor reconcile [--json] [--config FILE] [--KEY=VALUE ...]\n\n"+
			"Exit codes: %d nothing differs, %d breaks were found, %d the configuration cannot be, %d nothing but payouts that wait, for "+
			"money or evidence, %d it could not be compared\n\n%s",
			reconcile.ExitClean, reconcile.ExitBreaks, program.ExitConfig, reconcile.ExitWaiting, ExitNotCompared, config.Usage())
		return program.ExitOK
	}
	if err != nil {
		complain(err)
		return program.ExitConfig
	}
	report, err := compare(ctx, cfg, stderr)
	if err == nil {
		write := report.Text
		if len(rest) < len(args) {
			write = report.JSON
		}
		err = write(stdout)
	}
	if err != nil {
		complain(err)
		return ExitNotCompared
	}
	return report.ExitCode()
}

// compare puts a reconciler together, and runs it.
func compare(ctx context.Context, cfg config.Config, stderr io.Writer) (report reconcile.Report, err error) {
	web := remote.NewHTTPClient(cfg.Concurrency)
	defer web.CloseIdleConnections()
	c, err := client.New(cfg.LockServers)
	if err != nil {
		return report, err
	}
	defer func() { _ = c.Close() }() // it always succeeds
	held := locks.New(c, cfg.Who(), cfg.SessionTTL)
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		_ = held.Close(ctx) // if it cannot be asked, the session dies by itself
	}()
	metrics, err := telemetry.NewMetrics(prometheus.NewRegistry(), func() time.Duration { return 0 })
	if err != nil {
		return report, err
	}
	payments, rail := remote.NewPayments(web, cfg.Payment), remote.NewRail(web, cfg.Rail)
	e := payout.New(held, payments, rail, telemetry.NewObserver(metrics, cfg.Logger(stderr)), payout.Limits{})
	r := reconcile.Reconciler{
		Payments: payments, Rail: rail, Locks: held, Resolve: e.Resolve, Log: listing(cfg, web), Patience: reconcile.Patience,
	}
	return r.Run(ctx)
}

// listing reads the rail's own listing, if it is named.
func listing(cfg config.Config, web *http.Client) func(context.Context) ([]remote.Transfer, error) {
	if cfg.RailLog == "" {
		return nil
	}
	return func(ctx context.Context) ([]remote.Transfer, error) { return remote.Transfers(ctx, web, cfg.RailLog) }
}
