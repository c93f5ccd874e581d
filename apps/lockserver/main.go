// Command lockserver serves fenced locks.
//
//	lockserver [--config FILE] [--KEY=VALUE ...]    serve until SIGTERM or SIGINT
//	lockserver config [...]                         print the configuration that would be used
//	lockserver migrate [...]                        bring the database of the backend postgres to the newest schema
//	lockserver version                              print the version
//
// The first SIGTERM or SIGINT drains the server; a second one ends it at once. Exit codes: 0 after a
// drain, 1 when serving or migrating failed, 2 for a configuration that cannot be.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"go.uber.org/dig"
	"go.uber.org/fx"

	"github.com/fencelock/fencelock/apps/lockserver/config"
	"github.com/fencelock/fencelock/apps/lockserver/server"
)

const (
	exitOK     = 0
	exitFailed = 1
	exitConfig = 2
)

func main() {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	os.Exit(run(os.Args[1:], os.Environ(), os.Stdout, os.Stderr, signals))
}

// run is the program without its process.
func run(args, env []string, stdout, stderr io.Writer, signals <-chan os.Signal) int {
	command := "serve"
	if len(args) == 1 && args[0] == "--version" {
		command = "version"
	}
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		command, args = args[0], args[1:]
	}
	if command == "version" {
		_, _ = fmt.Fprintln(stdout, version())
		return exitOK
	}
	if !slices.Contains([]string{"serve", "config", "migrate"}, command) {
		complain(stderr, fmt.Errorf("unknown command %q; there are serve, config, migrate and version", command))
		return exitConfig
	}
	cfg, err := config.Load(args, env)
	if errors.Is(err, config.ErrHelp) {
		_, _ = fmt.Fprintf(stdout, "Usage: lockserver [serve|config|migrate|version] [--config FILE] [--KEY=VALUE ...]\n\n%s", config.Usage())
		return exitOK
	}
	if err != nil {
		complain(stderr, err)
		return exitConfig
	}
	switch command {
	case "config":
		if err := cfg.Print(stdout); err != nil {
			return exitFailed
		}
		return exitOK
	case "migrate":
		return migrate(cfg, stdout, stderr, signals)
	}
	return serve(cfg, stdout, stderr, signals)
}

// complain says in one line what went wrong. Errors of drivers may have several.
func complain(stderr io.Writer, err error) {
	_, _ = fmt.Fprintf(stderr, "lockserver: %s\n", config.Censor(strings.Join(strings.Fields(err.Error()), " ")))
}

// migrate brings the database to the newest schema; a signal ends it.
func migrate(cfg config.Config, stdout, stderr io.Writer, signals <-chan os.Signal) int {
	if cfg.Backend != config.Postgres {
		complain(stderr, fmt.Errorf("migrate: lock.backend is %s, where there is nothing to migrate", cfg.Backend))
		return exitConfig
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- server.Migrate(ctx, cfg) }()
	var err error
	select {
	case err = <-done:
	case <-signals:
		cancel()
		err = <-done
	}
	if err != nil {
		complain(stderr, err)
		return exitFailed
	}
	_, _ = fmt.Fprintf(stdout, "lockserver: the schema in %s is up to date\n", store(cfg))
	return exitOK
}

// serve runs the server until a signal or a failure.
func serve(cfg config.Config, stdout, stderr io.Writer, signals <-chan os.Signal) int {
	logger := newLogger(cfg, stderr)
	for _, key := range cfg.OpenToNetwork() {
		logger.Warn("open_to_network", slog.String("key", key),
			slog.String("danger", "anybody who can reach this address can take, release and revoke every lock"))
	}
	for _, key := range cfg.Unused() {
		logger.Warn("unused_key", slog.String("key", key))
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var doors *server.Doors
	app := fx.New(
		server.Options(ctx, cfg, logger, server.Build{Version: version(), StartedAt: time.Now()}),
		fx.Populate(&doors),
	)
	err := app.Err()
	if err == nil {
		err = app.Start(ctx)
	}
	if err != nil {
		complain(stderr, dig.RootCause(err))
		return exitFailed
	}
	_, _ = fmt.Fprintf(stdout, "lockserver ready: rpc http://%s, admin http://%s, %s\n", doors.Public(), doors.Admin(), store(cfg))
	code := exitOK
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
			return exitFailed
		}
		return code
	case <-signals:
		return exitFailed
	}
}

// store names the store without a password.
func store(cfg config.Config) string {
	if cfg.Backend == config.Postgres {
		return "PostgreSQL at " + cfg.Database()
	}
	if cfg.Embedded() {
		return "embedded etcd in " + cfg.EtcdDataDir
	}
	return "etcd at " + strings.Join(cfg.ShownEndpoints(), ",")
}

func newLogger(cfg config.Config, w io.Writer) *slog.Logger {
	level, _ := cfg.Level() // checked with the rest of the configuration
	options := &slog.HandlerOptions{Level: level}
	if cfg.LogFormat == "text" {
		return slog.New(slog.NewTextHandler(w, options))
	}
	return slog.New(slog.NewJSONHandler(w, options))
}

func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(devel)"
	}
	return info.Main.Version
}
