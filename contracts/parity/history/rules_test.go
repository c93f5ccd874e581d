package history_test

import (
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/contracts/parity/history"
	"github.com/fencelock/fencelock/core/lock"
)

// script builds a history by hand: calls one after the other, one second each, of a session A
// and a session B on one key. Sessions are opened with a guarantee of 10 s.
type script struct {
	key        lock.Key
	a, b       lock.SessionID
	now        time.Duration
	operations []history.Operation
}

func newScript() *script {
	key, _ := lock.NewKey("", "k")
	s := &script{key: key, a: lock.NewSessionID(), b: lock.NewSessionID()}
	s.add(history.Operation{Kind: history.Open, Session: s.a, Remaining: 10 * time.Second})
	s.add(history.Operation{Kind: history.Open, Session: s.b, Remaining: 10 * time.Second})
	return s
}

// add appends a call; without a status it is OK, unknown ones stay open.
func (s *script) add(o history.Operation) *script {
	if o.Status == "" {
		o.Status = history.OK
	}
	o.Call = s.now
	s.now += time.Second
	if o.Return = s.now - 1; o.Status == history.Unknown {
		o.Return = history.Forever
	}
	s.operations = append(s.operations, o)
	return s
}

func (s *script) later(d time.Duration) *script {
	s.now += d
	return s
}

func (s *script) acquire(id lock.SessionID, request lock.RequestID, token lock.Token) *script {
	o := history.Operation{Kind: history.Acquire, Key: s.key, Session: id, Request: request, Answer: token}
	if token == 0 {
		o.Status = history.Held
	}
	return s.add(o)
}

func (s *script) call(kind history.Kind, id lock.SessionID, token lock.Token, status history.Status) *script {
	o := history.Operation{Kind: kind, Key: s.key, Session: id, Token: token, Status: status}
	if kind == history.Extend && status == history.OK {
		o.Answer = token
	}
	return s.add(o)
}

// span gives the last call an interval of its own, in seconds since the start.
func (s *script) span(call, ret int) *script {
	last := &s.operations[len(s.operations)-1]
	last.Call, last.Return = time.Duration(call)*time.Second, time.Duration(ret)*time.Second
	return s
}

func TestLegalHistories(t *testing.T) {
	t.Parallel()
	for name, write := range map[string]func(s *script){
		"one after the other": func(s *script) {
			s.acquire(s.a, "1", 3).acquire(s.b, "2", 0).call(history.Release, s.a, 3, history.OK).acquire(s.b, "2", 4)
		},
		"the same request again": func(s *script) { s.acquire(s.a, "1", 3).acquire(s.a, "1", 3) },
		"a session dies after its guarantee": func(s *script) {
			s.acquire(s.a, "1", 3).later(8*time.Second).acquire(s.b, "2", 4)
			s.call(history.Release, s.a, 3, history.Lost).call(history.Extend, s.a, 3, history.Gone)
		},
		"a close frees": func(s *script) {
			s.acquire(s.a, "1", 3).add(history.Operation{Kind: history.Close, Session: s.a, Ended: 1}).acquire(s.b, "2", 4)
		},
		"a lost answer took effect": func(s *script) {
			s.add(history.Operation{Kind: history.Acquire, Key: s.key, Session: s.a, Request: "1", Status: history.Unknown})
			s.acquire(s.b, "2", 0).call(history.Release, s.a, 3, history.OK).acquire(s.b, "3", 4)
		},
		"a lost answer took no effect": func(s *script) {
			s.add(history.Operation{Kind: history.Acquire, Key: s.key, Session: s.a, Request: "1", Status: history.Unknown})
			s.acquire(s.b, "2", 4)
		},
		"a late duplicate": func(s *script) {
			s.acquire(s.a, "1", 3).call(history.Release, s.a, 3, history.OK).acquire(s.a, "1", 4)
		},
		"a lease lapses": func(s *script) {
			s.add(history.Operation{
				Kind: history.Acquire, Key: s.key, Session: s.a, Request: "1", Answer: 3, Lease: 2 * time.Second,
			}).later(2*time.Second).acquire(s.b, "2", 4)
			s.call(history.Extend, s.a, 3, history.Lost).add(history.Operation{Kind: history.Heartbeat, Session: s.a})
		},
		"never carried out": func(s *script) {
			s.acquire(s.a, "1", 3)
			s.add(history.Operation{Kind: history.Acquire, Key: s.key, Session: s.b, Answer: 9, Status: history.Void})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScript()
			write(s)
			if report, err := history.Check(s.operations, patience); err != nil || len(report.Undecided) > 0 {
				t.Errorf("undecided %v, %v", report.Undecided, err)
			}
		})
	}
}

// illegal is a history that no fenced lock has, and what Check says of it.
type illegal struct {
	write func(s *script)
	says  string
}

const noOrder = "no order"

func refuse(t *testing.T, cases map[string]illegal) {
	t.Helper()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScript()
			c.write(s)
			if _, err := history.Check(s.operations, patience); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error %v, want one with %q", err, c.says)
			}
		})
	}
}

func TestIllegalGrants(t *testing.T) {
	t.Parallel()
	refuse(t, map[string]illegal{
		"two holders": {func(s *script) { s.acquire(s.a, "1", 3).acquire(s.b, "2", 4) }, noOrder},
		"a grant before the guarantee is over": {func(s *script) {
			s.acquire(s.a, "1", 3).later(5*time.Second).acquire(s.b, "2", 4)
		}, noOrder},
		"a lower token": {func(s *script) {
			s.acquire(s.a, "1", 3).call(history.Release, s.a, 3, history.OK).acquire(s.b, "2", 2)
		}, "token 2 came after 3"},
		"one token twice": {func(s *script) {
			s.acquire(s.a, "1", 3).call(history.Release, s.a, 3, history.OK).acquire(s.b, "2", 3)
		}, "token 3 was given twice"},
		"held by nobody":      {func(s *script) { s.acquire(s.a, "1", 0) }, noOrder},
		"held by its request": {func(s *script) { s.acquire(s.a, "1", 3).acquire(s.a, "1", 0) }, noOrder},
		"re-entrant":          {func(s *script) { s.acquire(s.a, "1", 3).acquire(s.a, "2", 4) }, noOrder},
		"a stale release": {func(s *script) {
			s.acquire(s.a, "1", 3).call(history.Release, s.a, 2, history.OK)
		}, noOrder},
		"a lost release of a standing grant": {func(s *script) {
			s.acquire(s.a, "1", 3).call(history.Release, s.a, 3, history.Lost)
		}, noOrder},
	})
}

func TestIllegalEnds(t *testing.T) {
	t.Parallel()
	refuse(t, map[string]illegal{
		"life after death": {func(s *script) {
			s.later(20 * time.Second).add(history.Operation{Kind: history.Heartbeat, Session: s.a, Status: history.Gone})
			s.acquire(s.a, "1", 3)
		}, "session that was over"},
		"dead before the guarantee is over": {func(s *script) {
			s.acquire(s.a, "1", 3).add(history.Operation{Kind: history.Heartbeat, Session: s.a, Status: history.Gone})
		}, noOrder},
		"a lease lapses too early": {func(s *script) {
			s.add(history.Operation{
				Kind: history.Acquire, Key: s.key, Session: s.a, Request: "1", Answer: 3, Lease: 4 * time.Second,
			}).acquire(s.b, "2", 4)
		}, noOrder},
		"a request looked up for the dead": {func(s *script) {
			s.acquire(s.a, "1", 3).add(history.Operation{Kind: history.Close, Session: s.a, Ended: 1})
			s.add(history.Operation{Kind: history.Settle, Key: s.key, Session: s.a, Request: "1"})
		}, noOrder},
		"a list that misses a grant": {func(s *script) {
			s.acquire(s.a, "1", 3).add(history.Operation{Kind: history.LocksOf, Session: s.a})
		}, noOrder},
		"a list of what is over": {func(s *script) {
			s.acquire(s.a, "1", 3).call(history.Release, s.a, 3, history.OK)
			s.add(history.Operation{Kind: history.LocksOf, Session: s.a, Locks: []lock.Grant{{Key: s.key, Token: 3}}})
		}, noOrder},
		"seen as over before the guarantee is over": {func(s *script) {
			s.acquire(s.a, "1", 3).acquire(s.b, "2", 4).span(5, 15) // alone, it may have waited for the death of a
			s.add(history.Operation{Kind: history.Settle, Key: s.key, Session: s.b, Request: "2", Answer: 4}).span(6, 8)
		}, noOrder},
		"seen as lapsed before the lease is over": {func(s *script) {
			s.add(history.Operation{
				Kind: history.Acquire, Key: s.key, Session: s.a, Request: "1", Answer: 3, Lease: 8 * time.Second,
			}).acquire(s.b, "2", 4).span(5, 15)
			s.add(history.Operation{Kind: history.Settle, Key: s.key, Session: s.b, Request: "2", Answer: 4}).span(6, 8)
		}, noOrder},
		"a close that counts for a session that was over": {func(s *script) {
			s.later(20*time.Second).call(history.Extend, s.a, 3, history.Gone)
			s.add(history.Operation{Kind: history.Close, Session: s.a, Ended: 1})
		}, "session that was over"},
		"an extension that names another token": {func(s *script) {
			s.acquire(s.a, "1", 3)
			s.add(history.Operation{Kind: history.Extend, Key: s.key, Session: s.a, Token: 3, Answer: 4})
		}, noOrder},
		"a handoff that keeps the token": {func(s *script) {
			s.acquire(s.a, "1", 3)
			s.add(history.Operation{Kind: history.Handoff, Key: s.key, From: s.a, Token: 3, Session: s.b, Request: "2", Answer: 3})
		}, "token 3 was given twice"},
		"a lower token, asked for meanwhile": {func(s *script) {
			s.acquire(s.a, "1", 5).span(2, 9).call(history.Release, s.a, 5, history.OK).span(2, 9)
			s.acquire(s.b, "2", 4).span(3, 8)
		}, noOrder},
		"a grant below a floor raised meanwhile": {func(s *script) {
			s.acquire(s.a, "1", 3)
			s.add(history.Operation{Kind: history.Revoke, Key: s.key, Answer: 3, Deposed: s.a, Floor: 9}).span(4, 8)
			s.acquire(s.b, "2", 8).span(5, 7)
		}, noOrder},
		"revoked, and still there": {func(s *script) {
			s.acquire(s.a, "1", 3)
			s.add(history.Operation{Kind: history.Revoke, Key: s.key, Answer: 3, Deposed: s.a, Floor: 4})
			s.call(history.Extend, s.a, 3, history.OK)
		}, noOrder},
		"a grant below the floor": {func(s *script) {
			s.acquire(s.a, "1", 3)
			s.add(history.Operation{Kind: history.Revoke, Key: s.key, Answer: 3, Deposed: s.a, Floor: 9})
			s.acquire(s.b, "2", 8)
		}, "token 8 came after 9"},
	})
}
