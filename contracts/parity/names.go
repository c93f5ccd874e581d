package parity

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fencelock/fencelock/core/clock"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
	"github.com/fencelock/fencelock/core/service"
)

// unasked is a server without a store: a request that breaks a rule of form
// must be refused before any store is asked.
func unasked() *service.Service {
	return service.New(port.Backend{}, service.Config{}, clock.Boot{}, deaf{})
}

// refused fails the case unless the call is invalid, without any store.
func (s *stage) refused(what string, call func() error) {
	s.Helper()
	defer func() {
		if r := recover(); r != nil {
			s.Errorf("%s: the store was asked (%v)", what, r)
		}
	}()
	s.expect(what, call(), lock.ErrInvalid)
}

func badNames(s *stage) {
	for _, name := range []string{
		"", "/", "/a", "a/", "a//b", ".", "..", "a/.", "a/../b", "./a", "a b", "a\x00", "a\n", "ä", "a*", "a%b", "a\\b", "a?b",
		strings.Repeat("a", lock.MaxKeyBytes+1),
	} {
		_, err := lock.NewKey("", name)
		s.expect(fmt.Sprintf("key %q", name), err, lock.ErrInvalid)
	}
	for _, namespace := range []string{"A", "a.b", "a_b", "a/b", "ä", " ", strings.Repeat("a", lock.MaxNamespaceBytes+1)} {
		_, err := lock.NewKey(namespace, "a")
		s.expect(fmt.Sprintf("namespace %q", namespace), err, lock.ErrInvalid)
	}
}

func badRequests(s *stage) {
	server := unasked()
	ctx := s.Context()
	good := port.GrantRequest{Key: s.key("a"), Session: lock.NewSessionID(), RequestID: "r"}
	pairs := map[string]string{}
	for i := range lock.MaxMetadataPairs + 1 {
		pairs[fmt.Sprint(i)] = "x"
	}
	for what, change := range map[string]func(*service.AcquireRequest){
		"no key":             func(r *service.AcquireRequest) { r.Key = lock.Key{} },
		"no session":         func(r *service.AcquireRequest) { r.Session = lock.SessionID{} },
		"no request id":      func(r *service.AcquireRequest) { r.RequestID = "" },
		"long request id":    func(r *service.AcquireRequest) { r.RequestID = lock.RequestID(strings.Repeat("r", 65)) },
		"bad request id":     func(r *service.AcquireRequest) { r.RequestID = "a b" },
		"short lease":        func(r *service.AcquireRequest) { r.Lease = time.Second },
		"long lease":         func(r *service.AcquireRequest) { r.Lease = lock.MaxTTL + 1 },
		"negative lease":     func(r *service.AcquireRequest) { r.Lease = -time.Second },
		"negative wait":      func(r *service.AcquireRequest) { r.Wait = -1 },
		"many metadata":      func(r *service.AcquireRequest) { r.Metadata = pairs },
		"long metadata":      func(r *service.AcquireRequest) { r.Metadata = map[string]string{"a": strings.Repeat("x", 4096)} },
		"nameless metadata":  func(r *service.AcquireRequest) { r.Metadata = map[string]string{"": "x"} },
		"disguised metadata": func(r *service.AcquireRequest) { r.Metadata = map[string]string{"a": "x\n"} },
	} {
		req := service.AcquireRequest{GrantRequest: good}
		change(&req)
		s.refused("acquire with "+what, func() error { _, err := server.Acquire(ctx, req); return err })
	}
	for _, owner := range []lock.Owner{"", lock.Owner(strings.Repeat("ü", lock.MaxOwnerRunes+1)), "a\nb", "a\x00", "\xff", "a\u202eb"} {
		s.refused(fmt.Sprintf("open by %q", owner), func() error {
			_, err := server.OpenSession(ctx, port.OpenRequest{Owner: owner})
			return err
		})
	}
	s.refused("heartbeat without a session", func() error {
		_, err := server.Heartbeat(ctx, service.HeartbeatRequest{})
		return err
	})
	for _, token := range []lock.Token{0, -1} {
		s.refused("release with a token that is none", func() error {
			_, err := server.Release(ctx, good.Key, good.Session, token)
			return err
		})
		s.refused("extend with a token that is none", func() error {
			_, err := server.Extend(ctx, good.Key, good.Session, token, 0)
			return err
		})
	}
}

func badRevocations(s *stage) {
	server := unasked()
	good := port.RevokeRequest{Key: s.key("a"), Operator: "ops", Reason: "12345678"}
	for what, change := range map[string]func(*port.RevokeRequest){
		"no key":             func(r *port.RevokeRequest) { r.Key = lock.Key{} },
		"no operator":        func(r *port.RevokeRequest) { r.Operator = "" },
		"no reason":          func(r *port.RevokeRequest) { r.Reason = "" },
		"too short a reason": func(r *port.RevokeRequest) { r.Reason = "1234567" },
		"too long a reason":  func(r *port.RevokeRequest) { r.Reason = strings.Repeat("x", lock.MaxReasonRunes+1) },
		"a disguised reason": func(r *port.RevokeRequest) { r.Reason = "1234567\n8" },
		"a negative token":   func(r *port.RevokeRequest) { r.Expected = -1 },
	} {
		req := good
		change(&req)
		s.refused("revoke with "+what, func() error { _, err := server.Revoke(s.Context(), req); return err })
	}
	holder := s.open(s.First, longTTL)
	g := s.hold(s.First, good.Key, holder)
	r := must[lock.Revocation](s, "revoke for 8 characters")(s.serve(s.Second).Revoke(s.Context(), good))
	if r.PreviousToken != g.Token || r.Operator != good.Operator || r.Reason != good.Reason {
		s.Errorf("revocation %+v, want of token %d by %q for %q", r, g.Token, good.Operator, good.Reason)
	}
}

func ttlRules(s *stage) {
	bad := unasked()
	for _, ttl := range []time.Duration{-1, 1, time.Second, lock.MinTTL - 1, lock.MaxTTL + 1, 24 * time.Hour} {
		s.refused(fmt.Sprintf("open with a TTL of %v", ttl), func() error {
			_, err := bad.OpenSession(s.Context(), port.OpenRequest{Owner: "worker", TTL: ttl})
			return err
		})
	}
	server := s.serve(s.First)
	for asked, want := range map[time.Duration]time.Duration{
		0: lock.DefaultTTL, 2*time.Second + 1: 3 * time.Second, 2500 * time.Millisecond: 3 * time.Second, lock.MaxTTL: lock.MaxTTL,
	} {
		session := must[lock.Session](s, "open")(ask(s.Context(), true, func(ctx context.Context) (lock.Session, error) {
			return server.OpenSession(ctx, port.OpenRequest{Owner: "worker", TTL: asked})
		}))
		if v := s.heartbeat(s.Second, session); session.TTL != want || v.TTL != want {
			s.Errorf("asked for a TTL of %v: session says %v, heartbeat %v, want %v", asked, session.TTL, v.TTL, want)
		}
	}
}

// exactNames are keys that a careless store would take for one another.
func exactNames() []string {
	return []string{
		"a", "a/b", "a/b/c", "A", "a.b", "a-b", "a0", "aa", "b", "61", "a=", "a+b", "a:b", "a@b", "a_b",
		strings.Repeat("k", lock.MaxKeyBytes), strings.Repeat("k", lock.MaxKeyBytes-1),
	}
}

func keysAreExact(s *stage) {
	holder, other := s.open(s.First, longTTL), s.open(s.Second, longTTL)
	grants := map[string]lock.Grant{}
	for _, name := range exactNames() {
		grants[name] = s.hold(s.First, s.key(name), holder)
	}
	s.release(s.Second, grants["a"])
	for _, name := range exactNames() {
		if h := s.read(s.Second, s.key(name)); h.Held != (name != "a") {
			s.Errorf("after the release of a, %s is held: %v", name, h.Held)
		}
	}
	s.hold(s.Second, s.key("a"), other)
	for prefix, want := range map[string][]string{"a/": {"a/b", "a/b/c"}, "a/b": {"a/b", "a/b/c"}, "A": {"A"}, "c": {}} {
		var names []string
		for _, g := range must[[]lock.Grant](s, "list")(listed(s.Context(), s.First, prefix)) {
			names = append(names, g.Key.Name())
		}
		if !slices.Equal(names, want) {
			s.Errorf("keys with the prefix %q: %q, want %q", prefix, names, want)
		}
	}
}

func namespacesAreApart(s *stage) {
	holder := s.open(s.First, longTTL)
	var last lock.Grant
	for _, namespace := range []string{"", "a", "a-b", "0", strings.Repeat("n", lock.MaxNamespaceBytes)} {
		key := must[lock.Key](s, "make key")(lock.NewKey(namespace, "same/name"))
		last = s.hold(s.First, key, holder)
	}
	list, _, err := s.Second.Catalog.Grants(s.Context(), "a", "", port.Page{Size: 10})
	if err != nil || len(list) != 1 || list[0].Key.Namespace() != "a" {
		s.Errorf("namespace a lists %d grants, %v, want its own", len(list), err)
	}
	s.release(s.Second, last)
	if n := len(s.locksOf(s.Second, holder)); n != 4 {
		s.Errorf("%d of 5 grants are left after the release of one, want 4", n)
	}
	if n := s.close(s.First, holder.ID); n != 4 {
		s.Errorf("close ended %d grants, want 4 in as many namespaces", n)
	}
}
