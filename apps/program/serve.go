package program

import (
	"context"
	"fmt"
	"io"
	"os"

	"go.uber.org/dig"
	"go.uber.org/fx"
)

// serve runs the graph until a signal or a failure.
func (p Program[C]) serve(cfg C, stdout, stderr io.Writer, signals <-chan os.Signal) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var ready Ready
	app := fx.New(fx.NopLogger, p.Graph(ctx, cfg, cfg.Logger(stderr)), fx.Populate(&ready))
	err := app.Err()
	if err == nil {
		err = app.Start(ctx)
	}
	if err != nil {
		p.complain(stderr, dig.RootCause(err))
		return ExitFailed
	}
	_, _ = fmt.Fprintf(stdout, "%s ready: %s\n", p.Name, ready())
	return stop(ctx, app, signals, wait(app, signals))
}

// wait returns when a signal has come or something has failed, with the exit code. The graph hears the signals of the operating system
// too: what it tells of without an exit code is the signal that comes from signals itself, and must not be taken for another one.
func wait(app *fx.App, signals <-chan os.Signal) (code int) {
	failed := app.Wait()
	for {
		select {
		case <-signals:
			return ExitOK
		case s := <-failed:
			if s.ExitCode != ExitOK {
				return s.ExitCode
			}
			failed = nil
		}
	}
}

// stop drains; a second signal ends it at once.
func stop(ctx context.Context, app *fx.App, signals <-chan os.Signal, code int) int {
	ctx, cancel := context.WithTimeout(ctx, app.StopTimeout())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- app.Stop(ctx) }()
	select {
	case err := <-done:
		if err != nil {
			return ExitFailed
		}
		return code
	case <-signals:
		return ExitFailed
	}
}
