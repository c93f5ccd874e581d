package command

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fencelock/fencelock/adapters/client"
	v1 "github.com/fencelock/fencelock/contracts/api/fencelock/v1"
	"github.com/fencelock/fencelock/core/lock"
)

// keyFlag adds the key that a command is about.
func keyFlag(cmd *cobra.Command, key *string) {
	cmd.Flags().StringVar(key, "key", "", "name of the lock")
	mustRequire(cmd, "key")
}

// sessionFlag adds the session in whose name a command acts.
func (p *program) sessionFlag(cmd *cobra.Command, session *string) {
	cmd.Flags().StringVar(session, "session", p.env("FENCELOCK_SESSION"),
		"secret id of the session (better FENCELOCK_SESSION: arguments can be seen by others)")
	// The value from the environment is a secret too; --help must not print it.
	cmd.Flags().Lookup("session").DefValue = ""
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if *session == "" {
			return errors.New("no session: set FENCELOCK_SESSION, or --session (lockctl session open)")
		}
		return nil
	}
}

// mustRequire marks a flag as required; it can fail only for a flag that is not there.
func mustRequire(cmd *cobra.Command, flag string) {
	if err := cmd.MarkFlagRequired(flag); err != nil {
		panic(err)
	}
}

// given returns the duration if its flag was on the command line: absent and zero differ on the wire.
func given(cmd *cobra.Command, flag string, d time.Duration) *durationpb.Duration {
	if !cmd.Flags().Changed(flag) {
		return nil
	}
	return durationpb.New(d)
}

func (p *program) acquireCommand() *cobra.Command {
	req := &v1.AcquireRequest{}
	var wait, lease time.Duration
	cmd := &cobra.Command{
		Use:   "acquire --key KEY",
		Short: "Acquire a lock for an open session",
		Long: `Acquire a lock for an open session, which someone must keep alive with
"lockctl session heartbeat" (or use "lockctl run", which does it all).

A session does not re-enter: asking again while it holds the key is "held".
Only the same --request-id gives the same grant again. Without the flag a
fresh one is drawn, and withdrawn if the call fails.`,
		Args: cobra.NoArgs,
	}
	keyFlag(cmd, &req.Key)
	p.sessionFlag(cmd, &req.SessionId)
	cmd.Flags().StringVar(&req.RequestId, "request-id", "", "makes the call safe to repeat")
	cmd.Flags().DurationVar(&wait, "wait", 0, "how long to stand in line")
	cmd.Flags().DurationVar(&lease, "lease", 0, "end the grant after this time unless extended")
	cmd.Flags().StringToStringVar(&req.Metadata, "metadata", nil, "name=value pairs, for people")
	cmd.RunE = p.calling(func(ctx context.Context, c *client.Client) error {
		req.Namespace = p.namespace
		req.Wait, req.Lease = given(cmd, "wait", wait), given(cmd, "lease", lease)
		resp, err := p.acquireOnce(ctx, c, req, wait)
		if err != nil {
			return err
		}
		return p.printAcquired(resp)
	})
	return cmd
}

// acquireOnce sends the acquire once. Under an id of its own it withdraws what an error leaves open.
func (p *program) acquireOnce(
	ctx context.Context, c *client.Client, req *v1.AcquireRequest, wait time.Duration,
) (*v1.AcquireResponse, error) {
	own := req.GetRequestId() == ""
	if own {
		req.RequestId = rand.Text()
	}
	call, cancel := context.WithTimeout(ctx, max(0, wait)+p.timeout)
	defer cancel()
	resp, err := c.Locks().Acquire(call, connect.NewRequest(req))
	if err == nil {
		return resp.Msg, nil
	}
	err = client.Translate(err)
	if own && lock.IsAmbiguous(err) {
		tidy, cancel := detached(ctx)
		defer cancel()
		_, abandonErr := c.Locks().Abandon(tidy, connect.NewRequest(&v1.AbandonRequest{
			Namespace: req.GetNamespace(), Key: req.GetKey(), SessionId: req.GetSessionId(), RequestId: req.GetRequestId(),
		}))
		if abandonErr != nil {
			return nil, fmt.Errorf("%w; not withdrawn: repeat with --request-id %s, or close the session", err, req.GetRequestId())
		}
	}
	return nil, err
}

// printAcquired prints the outcome; held is an exit code, not an error.
func (p *program) printAcquired(resp *v1.AcquireResponse) error {
	held := resp.GetHeld()
	err := p.print(resp, func() []field {
		if held == nil {
			return grantFields(resp.GetGrant())
		}
		return []field{
			{"held", "true"},
			{"owner", held.GetOwner()},
			{"token", strconv.FormatInt(held.GetToken(), 10)},
			{"since", when(held.GetAcquiredAt())},
			{"waiters", strconv.Itoa(int(held.GetWaiters()))},
		}
	})
	if err == nil && held != nil {
		return exitError{code: codeNotAcquired}
	}
	return err
}

func grantFields(g *v1.Grant) []field {
	fields := []field{
		{"key", g.GetNamespace() + "/" + g.GetKey()},
		{"token", strconv.FormatInt(g.GetToken(), 10)},
		{"owner", g.GetOwner()},
		{"session", g.GetSessionHash()},
		{"acquired", when(g.GetAcquiredAt())},
		{"lease left", long(g.GetLeaseRemaining())},
		{"metadata", pairs(g.GetMetadata())},
	}
	if g.GetSignedToken() != "" {
		fields = append(fields, field{"signed token", g.GetSignedToken()})
	}
	if g.GetRequestId() != "" {
		fields = append(fields, field{"request id", g.GetRequestId()})
	}
	return fields
}

func (p *program) releaseCommand() *cobra.Command {
	req := &v1.ReleaseRequest{}
	cmd := &cobra.Command{
		Use:   "release --key KEY --token TOKEN",
		Short: "Release a lock",
		Long:  "Release a lock. A grant that was over already is reported as released: false; that is not an error.",
		Args:  cobra.NoArgs,
		RunE: p.unary(func(ctx context.Context, c *client.Client) error {
			req.Namespace = p.namespace
			resp, err := c.Locks().Release(ctx, connect.NewRequest(req))
			if err != nil {
				return err
			}
			return p.print(resp.Msg, func() []field {
				return []field{{"released", strconv.FormatBool(resp.Msg.GetReleased())}}
			})
		}),
	}
	keyFlag(cmd, &req.Key)
	p.sessionFlag(cmd, &req.SessionId)
	cmd.Flags().Int64Var(&req.Token, "token", 0, "fencing token of the grant")
	mustRequire(cmd, "token")
	return cmd
}

func (p *program) extendCommand() *cobra.Command {
	req := &v1.ExtendRequest{}
	var lease time.Duration
	cmd := &cobra.Command{
		Use:   "extend --key KEY --token TOKEN",
		Short: "Move the end of a grant that has a lease",
		Long:  "Move the end of a grant that has a lease, never earlier. A grant without one is printed unchanged.",
		Args:  cobra.NoArgs,
	}
	cmd.RunE = p.unary(func(ctx context.Context, c *client.Client) error {
		req.Namespace, req.Lease = p.namespace, given(cmd, "lease", lease)
		resp, err := c.Locks().Extend(ctx, connect.NewRequest(req))
		if err != nil {
			return err
		}
		return p.print(resp.Msg, func() []field { return grantFields(resp.Msg.GetGrant()) })
	})
	keyFlag(cmd, &req.Key)
	p.sessionFlag(cmd, &req.SessionId)
	cmd.Flags().Int64Var(&req.Token, "token", 0, "fencing token of the grant")
	cmd.Flags().DurationVar(&lease, "lease", 0, "time from now on; without it the grant's own lease again")
	mustRequire(cmd, "token")
	return cmd
}
