package command

import (
	"context"
	"fmt"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/fencelock/fencelock/adapters/client"
	v1 "github.com/fencelock/fencelock/contracts/api/fencelock/v1"
	"github.com/fencelock/fencelock/core/lock"
)

// Pauses between rounds through the servers.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = time.Second
)

func (p *program) watchCommand() *cobra.Command {
	req := &v1.WatchLockRequest{}
	cmd := &cobra.Command{
		Use:   "watch --key KEY",
		Short: "Follow who holds a lock, until interrupted",
		Long: `Follow who holds a lock, until interrupted: the present picture, then each
change that was seen. Quick changes may be seen as one. When a server ends the
watch the next one goes on with it, until none has answered for --timeout.

` + floorHelp,
		Args: cobra.NoArgs,
		RunE: p.reading(p.raw(func(cmd *cobra.Command, _ []string) error {
			req.Namespace = p.namespace
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			w := &watching{p: p, req: req}
			err := w.run(ctx)
			if ctx.Err() != nil {
				return exitError{code: exitCode(context.Cause(ctx))} // the usual end of a watch needs no word
			}
			return err
		})),
	}
	keyFlag(cmd, &req.Key)
	return cmd
}

// watching is a watch that moves from server to server.
type watching struct {
	p   *program
	req *v1.WatchLockRequest
	// shown is the picture printed last; nil before the first.
	shown *v1.InspectResponse
	seen  time.Time
}

// run watches at one server after the other until an error that lasts. Before the first
// picture each server is tried once.
func (w *watching) run(ctx context.Context) error {
	pause := firstPause
	for tries := 1; ; tries++ {
		before := w.seen
		err := translate(w.follow(ctx, w.p.servers[(tries-1)%len(w.p.servers)]))
		if ctx.Err() != nil || !lock.IsRetryable(err) {
			return err
		}
		if w.seen != before {
			pause, tries = firstPause, tries%len(w.p.servers)
		}
		switch {
		case tries%len(w.p.servers) != 0:
			continue
		case w.shown == nil || time.Since(w.seen) > w.p.timeout:
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		pause = min(2*pause, lastPause)
	}
}

// follow watches at one server until its stream ends.
func (w *watching) follow(ctx context.Context, server string) error {
	c, err := client.New([]string{server}, client.WithCallTimeout(w.p.timeout))
	if err != nil {
		return err
	}
	defer c.Close()
	stream, err := c.Locks().WatchLock(ctx, connect.NewRequest(w.req))
	if err != nil {
		return err
	}
	defer stream.Close()
	for first := true; stream.Receive(); first = false {
		w.seen = time.Now()
		state := stream.Msg().GetState()
		if first && samePicture(w.shown, state) {
			continue
		}
		w.shown = state
		if err := w.p.printChange(stream.Msg()); err != nil {
			return err
		}
	}
	if err := stream.Err(); err != nil {
		return translate(err)
	}
	return lock.Contention("the server ended the watch", false, nil)
}

// samePicture compares all but how long a lease still lasts.
func samePicture(a, b *v1.InspectResponse) bool {
	if a == nil || b == nil {
		return false
	}
	a, b = proto.CloneOf(a), proto.CloneOf(b)
	for _, m := range []*v1.InspectResponse{a, b} {
		if m.GetGrant() != nil {
			m.Grant.LeaseRemaining = nil
		}
	}
	return proto.Equal(a, b)
}

// printChange prints one picture of a watched key as one line.
func (p *program) printChange(m *v1.WatchLockResponse) error {
	if p.json {
		return p.printJSON(m)
	}
	state := m.GetState()
	what := "free"
	if g := state.GetGrant(); state.GetHeld() {
		what = fmt.Sprintf("held by %s, token %d, since %s", g.GetOwner(), g.GetToken(), when(g.GetAcquiredAt()))
	}
	_, err := fmt.Fprintf(p.streams.Out, "%s  %s, %d waiting, floor %d\n",
		p.now().UTC().Format(time.RFC3339), what, state.GetWaiters(), state.GetFloor())
	return written(err)
}
