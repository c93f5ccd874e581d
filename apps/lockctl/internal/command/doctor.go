package command

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/fencelock/fencelock/adapters/client"
	v1 "github.com/fencelock/fencelock/contracts/api/fencelock/v1"
	"github.com/fencelock/fencelock/core/lock"
)

// roundTrips is how many heartbeats doctor measures.
const roundTrips = 5

// check is one line of a doctor's report.
type check struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
}

// checkup is doctor's report about one server.
type checkup struct {
	Server string  `json:"server"`
	OK     bool    `json:"ok"`
	Checks []check `json:"checks"`
}

func (p *program) doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Check that each server works, by using it",
		Long: `Check that each server works, by using it: open a short session, acquire, see
and release a scratch lock, and measure heartbeats against the time to live.`,
		Args: cobra.NoArgs,
		RunE: p.raw(func(cmd *cobra.Command, _ []string) error {
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			healthy := true
			for _, server := range p.servers {
				c := p.examine(ctx, server)
				healthy = healthy && c.OK
				if err := p.printCheckup(c); err != nil {
					return err
				}
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if !healthy {
				return exitError{code: codeUnhealthy}
			}
			return nil
		}),
	}
}

func (p *program) printCheckup(c checkup) error {
	if p.json {
		return written(json.NewEncoder(p.streams.Out).Encode(c))
	}
	return p.table(func(w io.Writer) {
		fmt.Fprintln(w, c.Server)
		for _, one := range c.Checks {
			mark := "ok"
			if !one.OK {
				mark = "FAILED"
			}
			fmt.Fprintf(w, "  %s\t%s\t%s\n", mark, one.Name, one.Detail)
		}
	})
}

// examination is a doctor at work on one server.
type examination struct {
	p       *program
	c       *client.Client
	report  *checkup
	info    *v1.GetServerInfoResponse
	session *v1.Session
	key     string
	token   int64
}

// examine runs the checks in order, until one fails: each builds on those before.
func (p *program) examine(ctx context.Context, server string) (report checkup) {
	report.Server = server
	c, err := client.New([]string{server}, client.WithCallTimeout(p.timeout))
	if err != nil {
		report.Checks = []check{{"address", false, err.Error()}}
		return report
	}
	defer c.Close()
	e := &examination{p: p, c: c, report: &report, key: "lockctl-doctor/" + rand.Text()}
	defer e.closeSession(ctx)
	for _, step := range []struct {
		name string
		do   func(context.Context) (string, error)
	}{
		{"reachable", e.reach},
		{"ready", e.ready},
		{"session", e.open},
		{"acquire", e.acquire},
		{"inspect", e.inspect},
		{"heartbeat", e.heartbeat},
		{"release", e.release},
	} {
		call, cancel := context.WithTimeout(ctx, p.timeout)
		detail, err := step.do(call)
		cancel()
		if err != nil {
			body := p.describe(translate(err), server)
			report.Checks = append(report.Checks, check{step.name, false, body.Code + ": " + body.Message})
			return report
		}
		report.Checks = append(report.Checks, check{step.name, true, detail})
	}
	report.OK = true
	return report
}

func (e *examination) reach(ctx context.Context) (string, error) {
	resp, err := e.c.Admin().GetServerInfo(ctx, connect.NewRequest(&v1.GetServerInfoRequest{}))
	if err != nil {
		return "", err
	}
	e.info = resp.Msg
	return fmt.Sprintf("version %s, backend %s, up since %s", e.info.GetVersion(), e.info.GetBackend(), when(e.info.GetStartedAt())), nil
}

func (e *examination) ready(ctx context.Context) (string, error) {
	switch {
	case e.info.GetDraining():
		return "", lock.Contention("the server is draining: it is about to stop", false, nil)
	case !e.info.GetReady():
		return "", e.whyNotReady(ctx)
	}
	return fmt.Sprintf("%d grants, %d sessions in the store; %d waiting here",
		e.info.GetGrants(), e.info.GetSessions(), e.info.GetWaiters()), nil
}

// whyNotReady asks for a grant, since the answer gives the reason.
func (e *examination) whyNotReady(ctx context.Context) error {
	_, err := e.open(ctx)
	if err == nil {
		_, err = e.acquire(ctx)
	}
	if err == nil {
		return lock.Contention("the server says that it cannot grant, but has just done so", false, nil)
	}
	return fmt.Errorf("the server cannot grant now: %w", translate(err))
}

func (e *examination) open(ctx context.Context) (string, error) {
	resp, err := e.c.Sessions().OpenSession(ctx, connect.NewRequest(&v1.OpenSessionRequest{Owner: e.p.defaultOwner()}))
	if err != nil {
		return "", err
	}
	e.session = resp.Msg.GetSession()
	skew := e.p.now().Sub(e.session.GetCreatedAt().AsTime()).Round(time.Second)
	return fmt.Sprintf("time to live %s; clocks differ by about %s, which does no harm", long(e.session.GetTtl()), skew), nil
}

func (e *examination) acquire(ctx context.Context) (string, error) {
	resp, err := e.c.Locks().Acquire(ctx, connect.NewRequest(&v1.AcquireRequest{
		Namespace: e.p.namespace, Key: e.key, SessionId: e.session.GetId(), RequestId: rand.Text(),
	}))
	if err != nil {
		return "", err
	}
	e.token = resp.Msg.GetGrant().GetToken()
	if e.token <= 0 {
		return "", fmt.Errorf("a fresh key was not granted: %v", resp.Msg)
	}
	return fmt.Sprintf("%s granted with token %d", e.key, e.token), nil
}

func (e *examination) inspect(ctx context.Context) (string, error) {
	resp, err := e.c.Locks().Inspect(ctx, connect.NewRequest(&v1.InspectRequest{Namespace: e.p.namespace, Key: e.key}))
	if err != nil {
		return "", err
	}
	if got := resp.Msg.GetGrant().GetToken(); got != e.token {
		return "", fmt.Errorf("token %d is seen instead of %d", got, e.token)
	}
	return "the grant is seen", nil
}

// heartbeat measures round trips, and holds them against the time that a client has between two heartbeats.
func (e *examination) heartbeat(ctx context.Context) (string, error) {
	var trips []time.Duration
	var remaining time.Duration
	for range roundTrips {
		start := time.Now()
		resp, err := e.c.Sessions().Heartbeat(ctx, connect.NewRequest(&v1.HeartbeatRequest{SessionId: e.session.GetId()}))
		if err != nil {
			return "", err
		}
		trips = append(trips, time.Since(start))
		remaining = resp.Msg.GetRemaining().AsDuration()
	}
	margin := e.info.GetSafetyMargin()
	if margin <= 0 || margin >= 1 {
		margin = client.DefaultSafetyMargin
	}
	usable := time.Duration(float64(remaining) * (1 - margin))
	interval := usable / 3
	slowest := slices.Max(trips)
	slices.Sort(trips)
	detail := fmt.Sprintf("round trip %s median, %s slowest; a client may use %s of its %s and heartbeats every %s",
		trips[len(trips)/2].Round(time.Microsecond), slowest.Round(time.Microsecond),
		usable.Round(time.Millisecond), long(e.session.GetTtl()), interval.Round(time.Millisecond))
	if slowest > interval {
		return "", fmt.Errorf("too slow for the time to live: %s", detail)
	}
	return detail, nil
}

func (e *examination) release(ctx context.Context) (string, error) {
	resp, err := e.c.Locks().Release(ctx, connect.NewRequest(&v1.ReleaseRequest{
		Namespace: e.p.namespace, Key: e.key, SessionId: e.session.GetId(), Token: e.token,
	}))
	if err != nil {
		return "", err
	}
	if !resp.Msg.GetReleased() {
		return "", fmt.Errorf("the grant was over before it was released")
	}
	return "released", nil
}

// closeSession ends the session, if one was opened, also after a failure or an interruption.
func (e *examination) closeSession(ctx context.Context) {
	if e.session == nil {
		return
	}
	ctx, cancel := detached(ctx)
	defer cancel()
	if _, err := e.c.Sessions().CloseSession(ctx, connect.NewRequest(&v1.CloseSessionRequest{SessionId: e.session.GetId()})); err != nil {
		e.report.OK = false
		e.report.Checks = append(e.report.Checks, check{"close", false, explain(translate(err), []string{e.report.Server})})
	}
}
