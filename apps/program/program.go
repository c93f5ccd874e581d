package program

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

	"go.uber.org/fx"

	"github.com/fencelock/fencelock/apps/program/settings"
)

// Exit codes of every program.
const (
	// ExitOK is for what was done: a command, or serving until a drain.
	ExitOK = 0
	// ExitFailed is for serving or a command that failed, and for a drain that a second signal cut short.
	ExitFailed = 1
	// ExitConfig is for a command line or a configuration that cannot be.
	ExitConfig = 2
)

// Config is the configuration of a program.
type Config interface {
	// Print writes it in a form that can be read back as a file, without secrets.
	Print(w io.Writer) error
	// Logger writes to w what is severe enough, in the form that is set.
	Logger(w io.Writer) *slog.Logger
}

// Ready says where a program that has started answers; it stands in the ready line.
type Ready func() string

// Program is a program that serves until it is told to stop.
//
//	NAME [serve] [--config FILE] [--KEY=VALUE ...]    serve until SIGTERM or SIGINT
//	NAME config [...]                                 print the configuration that would be used
//	NAME version                                      print the version
//
// Once it serves, it says so in one line on standard output: "NAME ready: " and what [Ready] says. What goes wrong
// before that is one line on standard error. The first signal drains; a second one ends the program at once.
type Program[C Config] struct {
	// Name is what the program is called.
	Name string
	// Load reads the configuration from the arguments behind the command and the environment. It returns
	// [settings.ErrHelp] where they ask for help.
	Load func(args, env []string) (C, error)
	// Usage lists the keys, for --help.
	Usage func() string
	// Graph is all that serves. It has to provide a [Ready]. ctx ends with the program.
	Graph func(ctx context.Context, cfg C, logger *slog.Logger) fx.Option
	// Commands are further ones.
	Commands []Command[C]
}

// Command is something that a program does besides serving.
type Command[C Config] struct {
	Name string
	// Check refuses a configuration that the command cannot work with; nil takes every one.
	Check func(cfg C) error
	// Run does it, until ctx ends at the latest, and returns what to say about it.
	Run func(ctx context.Context, cfg C) (done string, err error)
	// Main, if set, stands for Check and Run: the command reads its arguments itself, says what it has to say, and returns the
	// exit code. ctx ends with a signal.
	Main func(ctx context.Context, args, env []string, stdout, stderr io.Writer) int
}

// Main is the main function of the program. It does not return.
func (p Program[C]) Main() {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	os.Exit(p.Run(os.Args[1:], os.Environ(), os.Stdout, os.Stderr, signals))
}

// Run is the program without its process: it returns the exit code.
func (p Program[C]) Run(args, env []string, stdout, stderr io.Writer, signals <-chan os.Signal) int {
	command, rest := "serve", args
	if len(args) == 1 && args[0] == "--version" {
		command = "version"
	}
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		command, rest = args[0], args[1:]
	}
	if command == "version" {
		_, _ = fmt.Fprintln(stdout, Version())
		return ExitOK
	}
	if names := p.commands(); !slices.Contains(names, command) {
		p.complain(stderr, fmt.Errorf("unknown command %q; there are %s and %s",
			command, strings.Join(names[:len(names)-1], ", "), names[len(names)-1]))
		return ExitConfig
	}
	if own := p.own(command); own != nil {
		ctx, cancel := ending(signals)
		defer cancel()
		return own(ctx, rest, env, stdout, stderr)
	}
	cfg, err := p.Load(rest, env)
	if errors.Is(err, settings.ErrHelp) {
		_, _ = fmt.Fprintf(stdout, "Usage: %s [%s] [--config FILE] [--KEY=VALUE ...]\n\n%s",
			p.Name, strings.Join(p.commands(), "|"), p.Usage())
		return ExitOK
	}
	if err != nil {
		p.complain(stderr, p.misplaced(err))
		return ExitConfig
	}
	switch command {
	case "serve":
		return p.serve(cfg, stdout, stderr, signals)
	case "config":
		if err := cfg.Print(stdout); err != nil {
			return ExitFailed
		}
		return ExitOK
	}
	return p.do(command, cfg, stdout, stderr, signals)
}

// commands are the names of all commands.
func (p Program[C]) commands() []string {
	names := []string{"serve", "config"}
	for _, c := range p.Commands {
		names = append(names, c.Name)
	}
	return append(names, "version")
}

// own is the main function of a command that has one.
func (p Program[C]) own(name string) func(ctx context.Context, args, env []string, stdout, stderr io.Writer) int {
	for _, c := range p.Commands {
		if c.Name == name {
			return c.Main
		}
	}
	return nil
}

// ending is a context that the first signal ends.
func ending(signals <-chan os.Signal) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		select {
		case <-signals:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// misplaced explains the error about a command that does not stand first.
func (p Program[C]) misplaced(err error) error {
	extra, ok := errors.AsType[*settings.ExtraArgumentError](err)
	if !ok || !slices.Contains(p.commands(), extra.Argument) {
		return err
	}
	return fmt.Errorf("the command %s must stand before all flags: %s %s [--KEY=VALUE ...]", extra.Argument, p.Name, extra.Argument)
}

// complain says in one line what went wrong. Errors of drivers may have several.
func (p Program[C]) complain(stderr io.Writer, err error) {
	_, _ = fmt.Fprintf(stderr, "%s: %s\n", p.Name, settings.Line(err))
}

// do runs a further command; a signal ends it.
func (p Program[C]) do(name string, cfg C, stdout, stderr io.Writer, signals <-chan os.Signal) int {
	command := p.Commands[slices.IndexFunc(p.Commands, func(c Command[C]) bool { return c.Name == name })]
	if command.Check != nil {
		if err := command.Check(cfg); err != nil {
			p.complain(stderr, fmt.Errorf("%s: %w", name, err))
			return ExitConfig
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	type result struct {
		text string
		err  error
	}
	done := make(chan result, 1)
	go func() {
		text, err := command.Run(ctx, cfg)
		done <- result{text, err}
	}()
	var r result
	select {
	case r = <-done:
	case <-signals:
		cancel()
		r = <-done
	}
	if r.err != nil {
		p.complain(stderr, r.err)
		return ExitFailed
	}
	_, _ = fmt.Fprintf(stdout, "%s: %s\n", p.Name, r.text)
	return ExitOK
}

// Version is the version of the program that runs.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(devel)"
	}
	return info.Main.Version
}
