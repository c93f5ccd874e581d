package stack

import (
	"context"
	"crypto/rand"
	"fmt"

	"connectrpc.com/connect"

	fencelockv1 "github.com/fencelock/fencelock/contracts/api/fencelock/v1"
	"github.com/fencelock/fencelock/contracts/api/fencelock/v1/fencelockv1connect"
	"github.com/fencelock/fencelock/tools/drills/judge"
	"github.com/fencelock/fencelock/tools/drills/metrics"
)

// Evidence collects what all parts wrote down. Nobody should be writing meanwhile: stop or freeze the executors first.
func (s *Stack) Evidence(ctx context.Context) (e judge.Evidence, err error) {
	payouts, err := s.Payouts(ctx)
	if err != nil {
		return e, err
	}
	for _, p := range payouts {
		e.Payouts = append(e.Payouts, p.Payout)
	}
	if e.Events, err = s.Events(ctx); err != nil {
		return e, err
	}
	if e.Accounts, e.Groups, err = s.Ledger(ctx); err != nil {
		return e, err
	}
	if e.Submissions, err = s.Submissions(ctx); err != nil {
		return e, err
	}
	if e.Transfers, err = s.Transfers(ctx); err != nil {
		return e, err
	}
	for _, run := range s.locks {
		if err := s.readOn(ctx, run); err != nil {
			return e, err
		}
		granted, released := grants(run.server, Lines(run.Output()))
		e.Grants, e.Releases = append(e.Grants, granted...), append(e.Releases, released...)
	}
	for _, x := range s.executors {
		e.Uses = append(e.Uses, uses(Lines(x.Output()))...)
	}
	return e, nil
}

// readOn waits until everything is read that a lock server has printed so far: a line of now comes after it.
func (s *Stack) readOn(ctx context.Context, run lockRun) error {
	select {
	case <-run.Exited():
		return nil
	default:
	}
	mark := "reader-" + rand.Text()
	sessions := fencelockv1connect.NewSessionServiceClient(s.client, run.url, insist())
	opened, err := sessions.OpenSession(ctx, connect.NewRequest(&fencelockv1.OpenSessionRequest{Owner: mark}))
	if err != nil {
		return fmt.Errorf("open session: %w", err)
	}
	run.AwaitOutput(s.t, mark)
	_, err = sessions.CloseSession(ctx, connect.NewRequest(&fencelockv1.CloseSessionRequest{SessionId: opened.Msg.GetSession().GetId()}))
	if err != nil {
		return fmt.Errorf("close session: %w", err)
	}
	return nil
}

// Scrape is one look at the metrics of all programs that run: by the name of the program.
func (s *Stack) Scrape(ctx context.Context) (map[string]metrics.Scrape, error) {
	targets := map[string]string{"lockserver": "http://" + s.Lock.Admin}
	for _, service := range s.Services() {
		targets[service.Name] = service.Admin
	}
	for _, e := range s.executors {
		if !e.over {
			targets[e.Name] = e.Admin
		}
	}
	all := map[string]metrics.Scrape{}
	for name, admin := range targets {
		scrape, err := metrics.Get(ctx, s.client, admin)
		if err != nil {
			return nil, fmt.Errorf("look at %s: %w", name, err)
		}
		all[name] = scrape
	}
	return all, nil
}
