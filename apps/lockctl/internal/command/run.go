package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencelock/fencelock/adapters/client"
	"github.com/fencelock/fencelock/apps/lockctl/internal/guard"
	"github.com/fencelock/fencelock/core/lock"
)

// Grace: what stopping a command may take.
const (
	defaultGrace = 5 * time.Second
	// graceShare is the part of the time left at the start that the grace may use up at most: the
	// rest is for heartbeats to fail and be tried again before anyone is stopped.
	graceShare = 4
)

// runOptions is what run asks for.
type runOptions struct {
	servers        []string
	timeout        time.Duration
	namespace, key string
	owner          string
	wait           time.Duration
	// ttl and lease are nil where the command line names none.
	ttl, lease *time.Duration
}

// held is a lock as run needs it.
type held struct {
	key   lock.Key
	token lock.Token
	// signed is the token's signed form, or "".
	signed string
	// left is how long the lock is still surely held.
	left func() time.Duration
	// sessionLeft is how long the session still surely lives: longer than left if the lock has a lease that ends before.
	sessionLeft func() time.Duration
	// lost is closed when the lock is known to be over; cause then says why.
	lost  <-chan struct{}
	cause func() error
	// release gives the lock back and ends all that keeps it alive. It is called once.
	release func(ctx context.Context) error
}

// acquireFunc gets a lock and keeps it alive until it is released or lost.
type acquireFunc func(ctx context.Context, o runOptions) (*held, error)

func (p *program) runCommand() *cobra.Command {
	o := runOptions{}
	var ttl, lease, grace time.Duration
	cmd := &cobra.Command{
		Use:   "run --key KEY -- COMMAND [ARGUMENT...]",
		Short: "Run a command while holding a lock",
		Long:  runHelp + "\n\n" + exitHelp,
		Example: `  lockctl run --key nightly --wait 10m -- ./backup.sh
  lockctl run --key demo -- sh -c 'echo token $FENCELOCK_TOKEN'`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("no command: lockctl run --key KEY -- COMMAND")
			}
			return nil
		},
	}
	keyFlag(cmd, &o.key)
	p.ownerFlag(cmd, &o.owner)
	flags := cmd.Flags()
	flags.SetInterspersed(false) // what follows the command's name is the command's own
	flags.DurationVar(&o.wait, "wait", 0, "how long to stand in line for the lock; 0 means not at all")
	flags.DurationVar(&ttl, "ttl", 0, "time to live of the session, 2s to 10m; without it the server's default")
	flags.DurationVar(&lease, "lease", 0, "longest time to hold the lock: the command is stopped before it ends, 2s to 10m")
	flags.DurationVar(&grace, "grace", defaultGrace,
		"time between TERM and the end of the lock, at most a quarter of what is left at the start")
	cmd.RunE = p.raw(func(cmd *cobra.Command, args []string) error {
		o.servers, o.timeout, o.namespace = p.servers, p.timeout, p.namespace
		if cmd.Flags().Changed("ttl") {
			o.ttl = &ttl
		}
		if cmd.Flags().Changed("lease") {
			o.lease = &lease
		}
		if grace <= 0 {
			return usageError{errors.New("--grace must be positive")}
		}
		return p.run(cmd.Context(), o, grace, args)
	})
	return cmd
}

const runHelp = `Open a session, acquire the lock, run the command, release the lock.

The command runs in a process group of its own with FENCELOCK_TOKEN, FENCELOCK_KEY,
FENCELOCK_NAMESPACE and FENCELOCK_SIGNED_TOKEN (empty where the server does not sign)
in its environment. It should hand the token to whatever it writes to, which should
refuse a token below the highest it has seen.

The lock is released only after every process of the group has ended. Processes
that the command leaves behind in its group are told to end (TERM, then KILL).
When the lock cannot be renewed, or its lease ends, the whole group is stopped
before the lock can go to anyone else, also if lockctl itself is frozen or killed.
After a revocation the lock is free at once, and the command runs on for a
moment until it is stopped; the token covers that.
A process that leaves the group (setsid) is not followed.

Interrupt, termination, hang-up, quit and user signals are passed to the group;
the lock stays held until the command has ended.`

// run holds the lock around the command.
func (p *program) run(ctx context.Context, o runOptions, grace time.Duration, args []string) error {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, passedOn()...)
	defer signal.Stop(signals)

	h, err := p.hold(ctx, o, signals)
	if err != nil {
		return err
	}
	result, err := guard.Run(guard.Command{
		Args:  args,
		Env:   append(os.Environ(), environment(h)...),
		Stdin: p.streams.In, Stdout: p.streams.Out, Stderr: p.streams.Err,
		Grace: min(grace, h.left()/graceShare),
	}, guard.Hold{Left: h.left, Lost: h.lost}, signals)
	cause := h.cause()
	if cause == nil && result.Lost {
		cause = h.shortage(o.lease)
	}
	// Nothing of the command is left, so the lock goes, whatever became of it meanwhile.
	tidy, cancel := detached(ctx)
	defer cancel()
	releaseErr := h.release(tidy)
	end := verdict(result, err, cause)
	if releaseErr != nil && !errors.Is(end, lock.ErrLost) {
		p.printError(fmt.Errorf("release lock: %w", releaseErr)) // it ends by itself, with its session
	}
	return end
}

// shortage says why too little was left of a lock that is still held. Read in this order, the
// session has more left than the lock only if a lease ends before it.
func (h *held) shortage(lease *time.Duration) error {
	left := h.left()
	switch {
	case h.sessionLeft() <= left:
		return &lock.Error{Code: lock.CodeLost, Message: "the lock could not be renewed in time"}
	case lease != nil:
		return &lock.Error{Code: lock.CodeLost, Message: fmt.Sprintf("its --lease of %s ended", *lease)}
	}
	return &lock.Error{Code: lock.CodeLost, Message: "the lease that the server gave ended"}
}

// verdict is how run ends.
func verdict(result guard.Result, err, cause error) error {
	switch {
	case cause != nil && result.Lost:
		return fmt.Errorf("the command was stopped: %w", cause)
	case cause != nil: // the command was quicker than the news
		return fmt.Errorf("the lock was lost while the command ran: %w", cause)
	case err != nil:
		return err
	case result.Failure != "":
		return exitError{result.Code, result.Failure}
	case result.Code != 0:
		return exitError{code: result.Code}
	}
	return nil
}

// hold acquires the lock. A signal meanwhile gives up.
func (p *program) hold(ctx context.Context, o runOptions, signals <-chan os.Signal) (*held, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		held *held
		err  error
	}
	answers := make(chan answer, 1)
	go func() {
		h, err := p.acquire(ctx, o)
		answers <- answer{h, err}
	}()
	select {
	case a := <-answers:
		return a.held, a.err
	case s := <-signals:
		cancel()
		a := <-answers
		if a.err == nil {
			tidy, cancel := detached(ctx)
			defer cancel()
			a.err = a.held.release(tidy)
		}
		return nil, errors.Join(signalError{s}, a.err)
	}
}

// passedOn lists the signals that go to the command, without those that whoever
// started lockctl has chosen to ignore (nohup).
func passedOn() []os.Signal {
	var caught []os.Signal
	for _, s := range []os.Signal{
		syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
	} {
		if !signal.Ignored(s) {
			caught = append(caught, s)
		}
	}
	return caught
}

// environment is what the command learns about its lock.
func environment(h *held) []string {
	return []string{
		"FENCELOCK_TOKEN=" + strconv.FormatInt(int64(h.token), 10),
		"FENCELOCK_SIGNED_TOKEN=" + h.signed, // also where it is empty: lockctl's own environment may have another lock's
		"FENCELOCK_KEY=" + h.key.Name(),
		"FENCELOCK_NAMESPACE=" + h.key.Namespace(),
	}
}

// acquireBySDK is the real [acquireFunc].
func acquireBySDK(ctx context.Context, o runOptions) (_ *held, err error) {
	c, err := client.New(o.servers, client.WithCallTimeout(o.timeout))
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = c.Close()
		}
	}()
	var sessionOptions []client.SessionOption
	if o.ttl != nil {
		sessionOptions = append(sessionOptions, client.WithTTL(*o.ttl))
	}
	s, err := c.OpenSession(ctx, o.owner, sessionOptions...)
	if err != nil {
		return nil, err
	}
	options := []client.AcquireOption{client.WithNamespace(o.namespace), client.WithWait(o.wait)}
	if o.lease != nil {
		options = append(options, client.WithLease(*o.lease))
	}
	l, err := s.Acquire(ctx, o.key, options...)
	if err != nil {
		tidy, cancel := detached(ctx)
		defer cancel()
		_, _ = s.Close(tidy) // it dies by itself otherwise
		return nil, err
	}
	return &held{
		key: l.Key(), token: l.Token(), signed: l.SignedToken(), left: l.Deadline, sessionLeft: s.Deadline,
		lost: l.Context().Done(), cause: l.CheckStillHeld,
		release: func(ctx context.Context) error { return giveBack(ctx, c, s, l) },
	}, nil
}

// giveBack releases the lock, and the session behind it.
func giveBack(ctx context.Context, c *client.Client, s *client.Session, l *client.Lock) error {
	defer c.Close()
	_, err := l.Release(ctx)
	// Closing frees the lock too, should the release not have reached the server.
	if _, closeErr := s.Close(ctx); closeErr == nil {
		return nil
	}
	return err
}
