package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencelock/fencelock/adapters/client"
	"github.com/fencelock/fencelock/apps/lockctl/internal/guard"
	"github.com/fencelock/fencelock/core/lock"
)

// Defaults of the global flags.
const (
	defaultServer  = "http://127.0.0.1:8470"
	defaultTimeout = 10 * time.Second
)

// cleanUp bounds what is still done after a call was given up or a command has ended.
const cleanUp = 5 * time.Second

// Streams are the standard streams.
type Streams struct{ In, Out, Err *os.File }

// program is one call of lockctl.
type program struct {
	streams Streams
	env     func(string) string
	acquire acquireFunc
	now     func() time.Time

	// Flags that every command has.
	servers   []string
	namespace string
	json      bool
	timeout   time.Duration
	// running is set once a command line has parsed: what fails later is not its fault.
	running bool
	// reads is set by commands that change nothing: what was carried out of them does not matter.
	reads bool
	// path is the command and its parents, for hints.
	path string
}

// Main runs lockctl with the arguments that follow its name and returns the exit code.
func Main(ctx context.Context, args []string, env func(string) string, streams Streams) int {
	if len(args) > 0 && args[0] == guard.Argument {
		return guard.Main(args[1:])
	}
	return newProgram(env, streams).main(ctx, args)
}

func newProgram(env func(string) string, streams Streams) *program {
	return &program{streams: streams, env: env, acquire: acquireBySDK, now: time.Now}
}

func (p *program) main(ctx context.Context, args []string) int {
	root := p.root()
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	p.path = cmd.CommandPath()
	if err != nil && !p.running {
		err = usageError{err}
	}
	if err != nil && !silent(err) {
		p.printError(err)
	}
	return exitCode(err)
}

// root builds the tree of commands.
func (p *program) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "lockctl",
		Short:         "Hold, inspect and administer fenced locks",
		Long:          "lockctl talks to a Fencelock server: locks whose grants carry a fencing token.\n\n" + exitHelp,
		Args:          cobra.NoArgs,
		RunE:          help,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetIn(p.streams.In)
	root.SetOut(p.streams.Out)
	root.SetErr(p.streams.Err)
	flags := root.PersistentFlags()
	flags.StringSliceVar(&p.servers, "server", servers(p.env("FENCELOCK_SERVER")),
		"addresses of lock servers, tried in turn (FENCELOCK_SERVER)")
	flags.StringVar(&p.namespace, "namespace", p.env("FENCELOCK_NAMESPACE"), `namespace of keys, "default" if empty (FENCELOCK_NAMESPACE)`)
	flags.BoolVar(&p.json, "json", false, "print JSON, one object per line")
	flags.DurationVar(&p.timeout, "timeout", defaultTimeout, "longest time for one call, beyond any --wait")
	root.AddCommand(p.runCommand(), p.acquireCommand(), p.releaseCommand(), p.extendCommand(),
		p.inspectCommand(), p.listCommand(), p.watchCommand(), p.sessionCommand(),
		p.revokeCommand(), p.revocationsCommand(), p.floorCommand(), p.doctorCommand(), p.versionCommand())
	return root
}

// help is what a command does that only groups others. Having it makes an unknown subcommand an error.
func help(cmd *cobra.Command, _ []string) error { return written(cmd.Help()) }

// exitHelp is the documented table of exit codes.
const exitHelp = `Exit codes:
  0    done
  200  the lock or the session is over; run: the command was stopped for it
  201  not acquired: someone else holds the lock
  202  unavailable: try again later
  203  bad usage or input
  204  refused
  205  doctor: a check failed
  206  anything else
run passes its command's own code through: 126 and 127 if it cannot be
executed or found, 128+n if it ended by signal n.`

// servers splits a list of addresses.
func servers(list string) []string {
	if list == "" {
		return []string{defaultServer}
	}
	return strings.Split(list, ",")
}

// raw makes a command's function out of one that looks after signals itself.
func (p *program) raw(f func(cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		p.running = true
		if p.timeout <= 0 {
			return usageError{errors.New("--timeout must be positive")}
		}
		return f(cmd, args)
	}
}

// reading makes a command's function out of one that changes nothing.
func (p *program) reading(f func(*cobra.Command, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		p.reads = true
		return f(cmd, args)
	}
}

// calling makes a command's function out of one that calls the service: with a client,
// and a context that ends by a signal.
func (p *program) calling(f func(ctx context.Context, c *client.Client) error) func(*cobra.Command, []string) error {
	return p.raw(func(cmd *cobra.Command, _ []string) error {
		c, err := client.New(p.servers, client.WithCallTimeout(p.timeout))
		if err != nil {
			return err
		}
		defer c.Close()
		ctx, stop := interruptible(cmd.Context())
		defer stop()
		err = translate(f(ctx, c))
		if err != nil && !silent(err) && ctx.Err() != nil {
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
		return err
	})
}

// unary makes a command's function out of one that makes calls within the timeout.
func (p *program) unary(f func(ctx context.Context, c *client.Client) error) func(*cobra.Command, []string) error {
	return p.calling(func(ctx context.Context, c *client.Client) error {
		ctx, cancel := context.WithTimeout(ctx, p.timeout)
		defer cancel()
		return f(ctx, c)
	})
}

// interruptible returns a context that the first interrupt or termination
// signal cancels, with a [signalError]. The second one ends the program as usual.
func interruptible(parent context.Context) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case s := <-signals:
			signal.Stop(signals)
			cancel(signalError{s})
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		cancel(nil)
		<-done
	}
}

// detached returns a short context for what must be done although ctx may be over.
func detached(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), cleanUp)
}

// ownerFlag adds the flag of a session's owner.
func (p *program) ownerFlag(cmd *cobra.Command, owner *string) {
	cmd.Flags().StringVar(owner, "owner", p.defaultOwner(), "who asks, for people and logs")
}

// defaultOwner is user@host, as far as known.
func (p *program) defaultOwner() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "unknown"
	}
	owner := host
	if user := p.env("USER"); user != "" {
		owner = user + "@" + host
	}
	if runes := []rune(owner); len(runes) > lock.MaxOwnerRunes {
		owner = string(runes[:lock.MaxOwnerRunes])
	}
	return owner
}
