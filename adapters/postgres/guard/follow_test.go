package guard_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencelock/fencelock/adapters/postgres"
	"github.com/fencelock/fencelock/contracts/parity/following"
	"github.com/fencelock/fencelock/core/clock"
	"github.com/fencelock/fencelock/core/fence"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

// service is a lock service's store, with one session.
type service struct {
	port.Backend

	session lock.SessionID
}

func newService(t *testing.T, url string) service {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	store, err := postgres.Dial(ctx, postgres.Access{URL: url}, postgres.Config{Clock: clock.Boot{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	s := service{Backend: store.Backend()}
	session, err := s.Sessions.OpenSession(ctx, port.OpenRequest{Owner: "holder", TTL: lock.MaxTTL})
	if err != nil {
		t.Fatal(err)
	}
	s.session = session.ID
	return s
}

// lockOf is the lock that protects a resource.
func lockOf(resource string) lock.Key {
	key, _ := lock.NewKey("", resource)
	return key
}

func (s service) grant(t *testing.T, resource string) lock.Token {
	t.Helper()
	attempt, err := s.Locks.TryInsert(t.Context(), port.GrantRequest{Key: lockOf(resource), Session: s.session, RequestID: "one"})
	if err != nil || !attempt.Granted {
		t.Fatalf("grant %s: %+v, %v", resource, attempt, err)
	}
	return attempt.Grant.Token
}

func (s service) revoke(t *testing.T, resource string) {
	t.Helper()
	req := port.RevokeRequest{Key: lockOf(resource), Operator: "op", Reason: "it is a test"}
	if _, err := s.Locks.Revoke(t.Context(), req); err != nil {
		t.Fatalf("revoke %s: %v", resource, err)
	}
}

// try asks in a transaction of its own, which is committed if the token is admitted.
func (p *place) try(t *testing.T, s shape, token lock.Token, rule fence.Rule) error {
	t.Helper()
	return pgx.BeginFunc(t.Context(), p.pool, func(tx pgx.Tx) error {
		return fence.New(s.marks.In(tx)).AdmitBy(t.Context(), rule, s.resource, token)
	})
}

// TestARevokedHolderIsRefusedBeforeTheNextOneWrites, with the marks in either place and tokens of a real lock service. A write that
// was admitted before is not disturbed: the mark waits for its end, and others do not wait for that.
func TestARevokedHolderIsRefusedBeforeTheNextOneWrites(t *testing.T) {
	t.Parallel()
	for _, s := range shapes() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			locks := newService(t, p.url)
			reports := following.Start(t, following.Of(locks.Backend), s.marks.Apart(p.pool))
			token := locks.grant(t, s.resource)
			if err := p.try(t, s, token, fence.Above); err != nil {
				t.Fatal(err)
			}
			open := p.begin(t, pgx.ReadCommitted)
			admits(t, s.advance, open, s.resource, token, fence.Equal)
			locks.revoke(t, s.resource)
			reports.Await(t, func(r following.Report) bool { return r.Resource == s.resource && lock.IsRetryable(r.Err) })
			commit(t, open)
			reports.AwaitRaised(t, s.resource)
			for _, rule := range []fence.Rule{fence.Above, fence.Equal, fence.NotBelow} {
				if err := p.try(t, s, token, rule); !errors.Is(err, lock.ErrFencedOut) {
					t.Errorf("the revoked holder, by %s: %v", rule, err)
				}
			}
			next := locks.grant(t, s.resource)
			for _, rule := range []fence.Rule{fence.Above, fence.Equal, fence.NotBelow} {
				if err := p.try(t, s, next, rule); err != nil {
					t.Errorf("the next holder, by %s: %v", rule, err)
				}
			}
		})
	}
}

// TestARevocationOfWhatHasNoRowHoldsUpNoOther: a key may protect nothing here.
func TestARevocationOfWhatHasNoRowHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	locks := newService(t, p.url)
	accounts := shapes()[1]
	for _, resource := range []string{"nobody", "a"} {
		locks.grant(t, resource)
		locks.revoke(t, resource)
	}
	reports := following.Start(t, following.Of(locks.Backend), accounts.marks.Apart(p.pool))
	seen := map[string]error{}
	reports.Await(t, func(r following.Report) bool {
		seen[r.Resource] = r.Err
		return len(seen) == 2
	})
	if err, refused := seen["a"], seen["nobody"]; err != nil || !errors.Is(refused, lock.ErrInvalid) {
		t.Errorf("a: %v, nobody: %v", err, refused)
	}
}
