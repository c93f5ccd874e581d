package parity

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
	"github.com/fencelock/fencelock/core/service"
)

// call is one call that meets a fault, with grants and sessions of its own.
type call struct {
	name string
	run  func(ctx context.Context) error
	// done reports, through Second, whether the store has carried it out; nil for a read.
	done func() bool
	// lives is set for the heartbeat, which may be answered while what the
	// store has guaranteed before is not over.
	lives bool
}

// calls prepares one of every call on First.
func (s *stage) calls() []call {
	s.Helper()
	b, session := s.First, s.open(s.First, longTTL)
	own := func(name string) (lock.Grant, port.GrantRequest) {
		req := s.request(s.key(name), session)
		return s.grab(s.First, req), req
	}
	settled := func(req port.GrantRequest) func() bool {
		return func() bool { _, ok := s.settle(s.Second, req); return ok }
	}
	gone := func(req port.GrantRequest) func() bool {
		return func() bool { return !settled(req)() }
	}
	insert, leased := s.request(s.key("insert"), session), s.request(s.key("insert/leased"), session)
	leased.Lease = time.Minute
	released, releasedReq := own("release")
	revoked, _ := own("revoke")
	passed, _ := own("handoff")
	extended, extendedReq := own("extend")
	_, abandoned := own("abandon")
	heir, closing := s.open(s.First, longTTL), s.open(s.First, longTTL)
	to := s.request(passed.Key, heir)
	return append(s.reads(session, extended, extendedReq), []call{
		{name: "acquire", done: settled(insert), run: func(ctx context.Context) error {
			_, err := b.Locks.TryInsert(ctx, insert)
			return err
		}},
		{name: "acquire with lease", done: settled(leased), run: func(ctx context.Context) error {
			_, err := b.Locks.TryInsert(ctx, leased)
			return err
		}},
		{name: "extend", run: func(ctx context.Context) error {
			_, err := b.Locks.Extend(ctx, extended.Key, extended.Session, extended.Token, 0)
			return err
		}},
		{name: "release", done: gone(releasedReq), run: func(ctx context.Context) error {
			_, err := b.Locks.DeleteIfOwner(ctx, released.Key, released.Session, released.Token)
			return err
		}},
		{name: "revoke", done: func() bool { return s.read(s.Second, revoked.Key).Floor > 0 }, run: func(ctx context.Context) error {
			_, err := revokeOnce(ctx, b, revoked.Key, 0)
			return err
		}},
		{name: "handoff", done: settled(to), run: func(ctx context.Context) error {
			_, err := b.Handover.Handoff(ctx, port.GrantRef{Key: passed.Key, Session: passed.Session, Token: passed.Token}, to)
			return err
		}},
		{name: "abandon", done: gone(abandoned), run: func(ctx context.Context) error {
			_, err := b.Handover.Abandon(ctx, abandoned.Key, abandoned.Session, abandoned.RequestID)
			return err
		}},
		{name: "open", run: func(ctx context.Context) error {
			_, err := b.Sessions.OpenSession(ctx, port.OpenRequest{Owner: "worker", TTL: longTTL})
			return err
		}},
		{name: "close", done: func() bool {
			_, err := held(s.Context(), s.Second, closing.ID)
			return lock.CodeOf(err) == lock.CodeSessionDead
		}, run: func(ctx context.Context) error {
			_, err := b.Sessions.CloseSession(ctx, closing.ID)
			return err
		}},
	}...)
}

// reads is the part of calls that changes no grant.
func (s *stage) reads(session lock.Session, g lock.Grant, req port.GrantRequest) []call {
	b := s.First
	return []call{
		{name: "settle", run: func(ctx context.Context) error {
			_, _, err := b.Handover.Settle(ctx, req.Key, req.Session, req.RequestID)
			return err
		}},
		{name: "read", run: func(ctx context.Context) error { _, err := b.Locks.Read(ctx, g.Key); return err }},
		{name: "heartbeat", lives: true, run: func(ctx context.Context) error { _, err := b.Sessions.Heartbeat(ctx, session.ID); return err }},
		{name: "locks of session", run: func(ctx context.Context) error { _, err := b.Sessions.LocksOf(ctx, session.ID); return err }},
		{name: "list grants", run: func(ctx context.Context) error {
			_, _, err := b.Catalog.Grants(ctx, lock.DefaultNamespace, "", port.Page{Size: 10})
			return err
		}},
		{name: "list revocations", run: func(ctx context.Context) error {
			_, _, err := b.Catalog.Revocations(ctx, lock.DefaultNamespace, port.Page{Size: 10})
			return err
		}},
		{name: "ping", run: b.Custodian.Ping},
	}
}

// faulted makes every call on First during a fault, all at once, and judges the errors; those
// that do not say that their outcome is unknown must have had no effect. fault is
// Partition or Pause.
func (s *stage) faulted(fault func(T) func()) {
	s.Helper()
	calls := s.calls()
	errs := make([]error, len(calls))
	heal := fault(s)
	ctx, cancel := s.cut()
	defer cancel()
	var group sync.WaitGroup
	for i, c := range calls {
		group.Go(func() { errs[i] = c.run(ctx) })
	}
	group.Wait()
	heal()
	for i, c := range calls {
		if errs[i] != nil || !c.lives {
			s.blip(c.name+" during the fault", errs[i])
		}
		if c.done != nil && !lock.IsAmbiguous(errs[i]) && c.done() {
			s.Errorf("%s failed with %v, was carried out, and does not say that its outcome is unknown", c.name, errs[i])
		}
	}
	for _, c := range s.again(calls) {
		s.Errorf("%s after the fault: %v", c.name, c.err)
	}
}

// failed is a call and its error.
type failed struct {
	name string
	err  error
}

// again makes the calls once more; whatever became of them the first time,
// First answers all of them, except that a retried act may find its work done.
func (s *stage) again(calls []call) (failures []failed) {
	s.Helper()
	for _, c := range calls {
		_, err := ask(s.Context(), true, func(ctx context.Context) (struct{}, error) { return struct{}{}, c.run(ctx) })
		if err != nil && lock.CodeOf(err) != lock.CodeLost {
			failures = append(failures, failed{c.name, err})
		}
	}
	return failures
}

func cutOff(s *stage)   { s.faulted(s.Partition) }
func answered(s *stage) { s.faulted(s.Pause) }

// lostAnswer: the store grants, the answer is lost, and the same request sent again, to
// either server, during the fault or after it, gets that very grant.
func lostAnswer(s *stage) {
	session := s.open(s.First, longTTL)
	s.heartbeat(s.First, session)
	var reqs []port.GrantRequest
	for i := range 3 {
		reqs = append(reqs, s.request(s.key(fmt.Sprintf("lost/%d", i)), session))
	}
	resume := s.Pause(s)
	ctx, cancel := s.cut()
	defer cancel()
	errs := make([]error, len(reqs))
	var group sync.WaitGroup
	for i, req := range reqs {
		group.Go(func() { _, errs[i] = s.First.Locks.TryInsert(ctx, req) })
	}
	group.Wait()
	tokens := map[lock.RequestID]lock.Token{}
	for i, err := range errs {
		s.blip("acquire whose answer is lost", err)
		if !lock.IsAmbiguous(err) {
			s.Errorf("acquire whose answer is lost: %v does not say that its outcome is unknown", err)
		}
		g := s.grab(s.Second, reqs[i])
		tokens[g.RequestID] = g.Token
	}
	resume()
	for _, req := range reqs {
		if g := s.grab(s.First, req); g.Token != tokens[req.RequestID] {
			s.Errorf("the retried request got token %d from one server and %d from the other", tokens[req.RequestID], g.Token)
		}
	}
	if list := s.locksOf(s.Second, session); len(list) != len(reqs) {
		s.Errorf("%d requests made %d grants", len(reqs), len(list))
	}
}

// waitDuringFault: a server without its store ends a wait in time, without a grant.
func waitDuringFault(s *stage) {
	session := s.open(s.First, longTTL)
	server := s.serveWith(s.First, service.Config{FallbackPoll: never, StoreTimeout: cutCall})
	req := s.request(s.key("waits"), session)
	heal := s.Partition(s)
	began := time.Now()
	const wait = 300 * time.Millisecond
	result, err := s.stand(server, req, wait).end("a wait without a store ends")
	if result.Granted || err != nil && !lock.IsRetryable(err) || err == nil {
		s.Errorf("a wait without a store: granted %v, %v, want a retryable error", result.Granted, err)
	}
	if took := time.Since(began); took > wait+4*cutCall+schedulingSlack {
		s.Errorf("a wait of %v without a store took %v", wait, took)
	}
	heal()
	s.stand(server, req, time.Hour).granted("the fault has healed")
}

func noGrantWithoutStore(s *stage) {
	session, heir := s.open(s.First, longTTL), s.open(s.First, longTTL)
	server := s.serveWith(s.First, service.Config{FallbackPoll: never, StoreTimeout: cutCall})
	g := s.hold(s.First, s.key("held"), session)
	foreign := s.hold(s.Second, s.key("foreign"), session)
	waited := s.request(s.key("free/too"), heir)
	heal := s.Partition(s)
	ctx, cancel := s.cut()
	defer cancel()
	var group sync.WaitGroup
	errs := make([]error, 4)
	for i, key := range []lock.Key{s.key("free"), foreign.Key} {
		group.Go(func() { _, errs[i] = s.First.Locks.TryInsert(ctx, s.request(key, heir)) })
	}
	group.Go(func() {
		_, errs[2] = s.First.Handover.Handoff(ctx, port.GrantRef{Key: g.Key, Session: g.Session, Token: g.Token}, s.request(g.Key, heir))
	})
	group.Go(func() {
		_, errs[3] = server.Acquire(ctx, service.AcquireRequest{GrantRequest: waited})
	})
	group.Wait()
	for i, err := range errs {
		s.blip(fmt.Sprintf("way %d to a grant without a store", i), err)
	}
	heal()
	s.holds(s.Second, foreign)
}

// noLifeWithoutStore: a server that cannot reach its store must not promise a
// session more than the store did.
func noLifeWithoutStore(s *stage) {
	session, _, p := s.mortal(s.First, s.key("cut"))
	limit := time.Now().Add(session.TTL)
	heal := s.Partition(s)
	for past := false; !past; s.breathe(4 * probePause) {
		ctx, cancel := context.WithTimeout(s.Context(), cutCall)
		sent := time.Now()
		past = sent.After(limit) // the last heartbeat is sent when the guarantee is over
		v, err := s.First.Sessions.Heartbeat(ctx, session.ID)
		cancel()
		if err != nil {
			s.blip("heartbeat without a store", err)
		} else if over := sent.Add(v.Remaining).Sub(limit); over > 0 {
			s.Errorf("a heartbeat without a store promised %v more than the store did", over)
		}
	}
	s.eventually("the session that no store renewed is dead", func() bool {
		_, err := held(s.Context(), s.Second, session.ID)
		return lock.CodeOf(err) == lock.CodeSessionDead
	})
	if early := time.Until(p.aliveUntil); early > 0 {
		s.Errorf("the session was dead %v too early", early)
	}
	heal()
	_, err := beat(s.Context(), s.First, session.ID)
	s.expect("heartbeat after the fault", err, lock.ErrSessionDead)
}

// serviceReturns: the same client serves again after the fault.
func serviceReturns(s *stage) {
	session := s.open(s.First, longTTL)
	kept := s.hold(s.First, s.key("kept"), session)
	for _, fault := range []func(T) func(){s.Partition, s.Pause, s.Partition} {
		heal := fault(s)
		ctx, cancel := context.WithTimeout(s.Context(), cutCall/4)
		_, err := s.First.Locks.TryInsert(ctx, s.request(s.key("during"), session))
		cancel()
		s.blip("acquire during the fault", err)
		heal()
		g := s.hold(s.First, s.key("after"), session)
		s.heartbeat(s.First, session)
		s.holds(s.First, kept)
		s.release(s.First, g)
	}
}

// missedWake: what ends during the fault reaches waiters and watchers after it.
func missedWake(s *stage) {
	holder, heir := s.open(s.Second, longTTL), s.open(s.Second, longTTL)
	server := s.serve(s.First)
	feed := s.subscribe(s.First)
	for i, fault := range []func(T) func(){s.Partition, s.Pause} {
		g := s.hold(s.Second, s.key(fmt.Sprintf("missed/%d", i)), holder)
		revoked := s.hold(s.Second, s.key(fmt.Sprintf("revoked/%d", i)), holder)
		w := s.queue(server, s.request(g.Key, heir))
		heal := fault(s)
		s.release(s.Second, g)
		must[lock.Revocation](s, "revoke")(s.revoke(s.Second, revoked.Key, 0))
		heal()
		s.release(s.Second, w.granted("a release during the fault is noticed after it"))
		// The news itself, or the advice to look again.
		for e := s.next(feed); e.Kind != port.Resync && e.Token != revoked.Token; e = s.next(feed) {
			s.Logf("the feed brought %+v", e)
		}
	}
}
