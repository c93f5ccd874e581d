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
	code := ExitOK
	select {
	case <-signals:
	case s := <-app.Wait():
		code = s.ExitCode
	}
	return stop(ctx, app, signals, code)
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
