package history_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/contracts/parity/history"
	"github.com/fencelock/fencelock/contracts/parity/reference"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

// play is how much happens in a simulation.
type play struct{ actors, acts, keys int }

var small = play{actors: 5, acts: 40, keys: 2}

// simulate runs a few clients with bad links and worse manners over one
// world, in virtual time, and returns what they saw.
func simulate(t *testing.T, p play, seed uint64, mutants ...reference.Mutant) (operations []history.Operation) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		world := reference.New(mutants...)
		defer world.Close()
		recorder := history.NewRecorder()
		gossip := &gossip{}
		var all sync.WaitGroup
		for i := range p.actors {
			client := world.Client()
			random := rand.New(rand.NewPCG(seed, uint64(i)))
			client.Weather(func() reference.Passage {
				return reference.Passage{
					There:       time.Duration(1 + random.IntN(3_000_000)),
					Back:        time.Duration(1 + random.IntN(3_000_000)),
					RequestLost: random.IntN(50) == 0, AnswerLost: random.IntN(50) == 0,
				}
			})
			a := &actor{Backend: recorder.Wrap(client.Backend()), random: random, gossip: gossip, keys: p.keys}
			all.Go(func() { a.live(t.Context(), p.acts) })
		}
		all.Wait()
		operations = recorder.Operations()
	})
	return operations
}

// gossip is what all actors know of each other: enough to do harm.
type gossip struct {
	mu       sync.Mutex
	grants   []lock.Grant
	sessions []lock.SessionID
}

func (g *gossip) tell(grant lock.Grant) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.grants = append(g.grants, grant)
}

func (g *gossip) grant(random *rand.Rand, own lock.Grant) lock.Grant {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.grants) == 0 {
		return own
	}
	return g.grants[max(0, len(g.grants)-1-random.IntN(4))]
}

func (g *gossip) open(id lock.SessionID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sessions = append(g.sessions, id)
}

func (g *gossip) session(random *rand.Rand) lock.SessionID {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.sessions[random.IntN(len(g.sessions))]
}

// actor is one client.
type actor struct {
	port.Backend
	random  *rand.Rand
	gossip  *gossip
	keys    int
	session lock.SessionID
	request port.GrantRequest // the last
	grant   lock.Grant        // the last
	serial  int
}

func (a *actor) live(ctx context.Context, acts int) {
	a.open(ctx)
	a.grant = lock.Grant{Key: a.key(), Token: 1} // nobody's
	a.request = a.newRequest(a.grant.Key)
	for range acts {
		a.act(ctx)
		time.Sleep(time.Duration(1 + a.random.IntN(20_000_000)))
	}
}

func (a *actor) open(ctx context.Context) {
	for {
		s, err := a.Sessions.OpenSession(ctx, port.OpenRequest{Owner: "actor", TTL: a.length()})
		if err == nil {
			a.session = s.ID
			a.gossip.open(s.ID)
			return
		}
	}
}

// act does one thing, sensible more often than not.
func (a *actor) act(ctx context.Context) {
	key := a.key()
	switch n := a.random.IntN(100); {
	case n < 30:
		a.acquire(ctx, a.newRequest(key))
	case n < 36:
		a.acquire(ctx, a.request) // again
	case n < 54:
		_, _ = a.Locks.DeleteIfOwner(ctx, a.grant.Key, a.session, a.grant.Token)
	case n < 57: // with the token of anyone
		g := a.gossip.grant(a.random, a.grant)
		_, _ = a.Locks.DeleteIfOwner(ctx, g.Key, a.session, g.Token)
	case n < 60: // with a token that may be over, of a key that may be held again
		_, _ = a.Locks.DeleteIfOwner(ctx, a.grant.Key, a.session, a.grant.Token-lock.Token(a.random.IntN(3)))
	case n < 67:
		_, _ = a.Sessions.Heartbeat(ctx, a.session)
	case n < 69:
		_, _ = a.Sessions.Heartbeat(ctx, a.gossip.session(a.random))
	case n < 73:
		_, _ = a.Locks.Extend(ctx, a.grant.Key, a.session, a.grant.Token, a.length())
	case n < 77:
		_, _ = a.Sessions.LocksOf(ctx, a.session)
	case n < 80:
		_, _, _ = a.Handover.Settle(ctx, a.request.Key, a.session, a.request.RequestID)
	case n < 82:
		_, _ = a.Handover.Abandon(ctx, a.request.Key, a.session, a.request.RequestID)
	case n < 86:
		a.handoff(ctx)
	case n < 88:
		_, _ = a.Locks.Revoke(ctx, port.RevokeRequest{Key: key, Operator: "op", Reason: "a test says so", Expected: a.expected()})
	case n < 89:
		_, _ = a.Sessions.CloseSession(ctx, a.session)
	case n < 95:
		a.nap(ctx)
	default:
		if _, err := a.Sessions.Heartbeat(ctx, a.session); err != nil {
			a.open(ctx)
		}
	}
}

// nap sleeps past a lease or a session's life and goes on as if nothing had happened.
func (a *actor) nap(ctx context.Context) {
	time.Sleep(time.Duration(a.random.IntN(int(3 * lock.MinTTL))))
	if a.random.IntN(2) == 0 {
		_, _ = a.Locks.Extend(ctx, a.grant.Key, a.session, a.grant.Token, 0)
		return
	}
	_, _ = a.Locks.DeleteIfOwner(ctx, a.grant.Key, a.session, a.grant.Token)
}

func (a *actor) key() lock.Key {
	key, _ := lock.NewKey("", fmt.Sprintf("k%d", a.random.IntN(a.keys)))
	return key
}

// length is a TTL or a lease.
func (a *actor) length() time.Duration { return lock.MinTTL * time.Duration(1+a.random.IntN(4)) }

func (a *actor) expected() lock.Token {
	if a.random.IntN(2) == 0 {
		return 0
	}
	return a.gossip.grant(a.random, a.grant).Token
}

func (a *actor) newRequest(key lock.Key) port.GrantRequest {
	a.serial++
	a.request = port.GrantRequest{Key: key, Session: a.session, RequestID: lock.RequestID(fmt.Sprintf("r%d", a.serial))}
	if a.random.IntN(2) == 0 {
		a.request.Lease = lock.MinTTL * time.Duration(1+a.random.IntN(2))
	}
	return a.request
}

func (a *actor) acquire(ctx context.Context, req port.GrantRequest) {
	if attempt, err := a.Locks.TryInsert(ctx, req); err == nil && attempt.Granted {
		a.grant = attempt.Grant
		a.gossip.tell(a.grant)
	}
}

func (a *actor) handoff(ctx context.Context) {
	a.serial++
	to := port.GrantRequest{
		Key: a.grant.Key, Session: a.gossip.session(a.random),
		RequestID: lock.RequestID(fmt.Sprintf("h%d-%d", a.serial, a.random.Int())),
	}
	from := port.GrantRef{Key: a.grant.Key, Session: a.session, Token: a.grant.Token}
	if g, err := a.Handover.Handoff(ctx, from, to); err == nil {
		a.gossip.tell(g)
	}
}
