package guard_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fencelock/fencelock/adapters/etcd"
	"github.com/fencelock/fencelock/contracts/parity/following"
	"github.com/fencelock/fencelock/core/clock"
	"github.com/fencelock/fencelock/core/fence"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
	"github.com/fencelock/fencelock/tools/testenv"
)

// patience bounds every wait for what must happen.
const patience = 30 * time.Second

// service is a lock service's store beside the marks, with one session and one lock.
type service struct {
	port.Backend

	session lock.SessionID
	key     lock.Key
}

func newService(t *testing.T, p *place) service {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	access := etcd.Access{Endpoints: testenv.Etcd(t).Endpoints}
	store, err := etcd.Dial(ctx, access, etcd.Config{Prefix: p.prefix + "locks/", Clock: clock.Boot{}})
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
	s.key, err = lock.NewKey("", "a")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (s service) grant(t *testing.T) lock.Token {
	t.Helper()
	attempt, err := s.Locks.TryInsert(t.Context(), port.GrantRequest{Key: s.key, Session: s.session, RequestID: "one"})
	if err != nil || !attempt.Granted {
		t.Fatalf("grant: %+v, %v", attempt, err)
	}
	return attempt.Grant.Token
}

// TestARevokedHolderIsRefusedBeforeTheNextOneWrites, with tokens of a real lock service.
func TestARevokedHolderIsRefusedBeforeTheNextOneWrites(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	locks := newService(t, p)
	reports := following.Start(t, following.Of(locks.Backend), p.Marks)
	write := func(token lock.Token, rule fence.Rule) error {
		_, err := p.Do(t.Context(), "a", token, rule, p.put("balance", rule.String()))
		return err
	}
	token := locks.grant(t)
	for _, rule := range []fence.Rule{fence.Above, fence.Equal} {
		if err := write(token, rule); err != nil {
			t.Fatalf("the holder, by %s: %v", rule, err)
		}
	}
	if _, err := locks.Locks.Revoke(t.Context(), port.RevokeRequest{Key: locks.key, Operator: "op", Reason: "it is a test"}); err != nil {
		t.Fatal(err)
	}
	reports.AwaitRaised(t, "a")
	for _, rule := range []fence.Rule{fence.NotBelow, fence.Equal, fence.Above} {
		if err := write(token, rule); !errors.Is(err, lock.ErrFencedOut) {
			t.Errorf("the revoked holder, by %s: %v", rule, err)
		}
	}
	if got := p.get(t, "balance"); got != "equal" {
		t.Errorf("what stands there was written by %s", got)
	}
	next := locks.grant(t)
	for _, rule := range []fence.Rule{fence.Above, fence.Equal, fence.NotBelow} {
		if err := write(next, rule); err != nil {
			t.Errorf("the next holder, by %s: %v", rule, err)
		}
	}
}
