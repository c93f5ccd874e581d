package parity_test

import (
	"slices"

	"github.com/fencelock/fencelock/contracts/parity"
	"github.com/fencelock/fencelock/contracts/parity/reference"
	"github.com/fencelock/fencelock/core/port"
)

// wrappedBugs are planted between a sound store and the service, for cases
// whose breach is not the store's own.
func wrappedBugs() []planted {
	bugs := []planted{
		{"listing forgets metadata", "SESS-01", wrapped(func(f *parity.Fixture) {
			f.Second.Catalog = forgetful{f.Second.Catalog}
		})},
		{"a session is known to its own server only", "SESS-08", wrapped(func(f *parity.Fixture) {
			f.Second.Sessions = stranger{f.Second.Sessions}
		})},
		{"extend promises and does nothing", "LOCK-07", wrapped(func(f *parity.Fixture) {
			f.Second.Locks = promises{f.Second.Locks}
		})},
		{"a fresh grant is not found at once", "LOCK-07", wrapped(func(f *parity.Fixture) {
			f.Second.Locks = &lagging{LockStore: f.Second.Locks}
		})},
		{"handoff of whatever grant is there", "LOCK-09", wrapped(func(f *parity.Fixture) {
			f.First.Handover = greedy{f.First.Handover, f.First.Locks}
		})},
		{"a dead waiter is granted, and no feed warns of it", "SESS-09", wrappedOver(
			referenceHarness(named("grant to a dead session"), named("handoff to a dead session")),
			func(f *parity.Fixture) { f.First.Feed = deafFeed{f.First.Feed} },
		)},
		{"namespaces are one", "LOCK-11", wrapped(func(f *parity.Fixture) { f.First.Locks = flat{f.First.Locks} })},
		{"a refused request is remembered", "LOCK-12", wrapped(remembers)},
		{"a refused request is remembered", "WAIT-05", wrapped(remembers)},
		{"a broken call takes its grant with it", "LOCK-12", wrapped(func(f *parity.Fixture) {
			f.First.Locks = tidy{f.First.Locks, f.First.Handover}
		})},
		{"the reason is lost", "REV-01", wrapped(func(f *parity.Fixture) { f.Second.Locks = nameless{f.Second.Locks} })},
		{"a deposed holder extends", "REV-03", wrapped(func(f *parity.Fixture) { f.First.Locks = merciful{f.First.Locks} })},
		{"held is answered late", "WAIT-01", wrapped(func(f *parity.Fixture) { f.First.Locks = slow{f.First.Locks} })},
		{"a free key is held at first", "WAIT-01", wrapped(func(f *parity.Fixture) {
			f.First.Locks = &shy{LockStore: f.First.Locks}
		})},
		{"a server hears nothing", "WAIT-02", wrapped(func(f *parity.Fixture) {
			for _, b := range []*port.Backend{&f.First, &f.Second} {
				b.Waiter, b.Feed, b.Locks = deafWaiter{}, deafFeed{b.Feed}, vague{b.Locks}
			}
		})},
		{"no second try before the wait", "WAIT-02", wrapped(func(f *parity.Fixture) {
			f.First.Locks = &oneTry{LockStore: f.First.Locks}
		})},
		{"the first in line is passed over", "WAIT-04", wrapped(func(f *parity.Fixture) {
			f.First.Handover = &passesOver{Handover: f.First.Handover}
		})},
		{"a server keeps the key to itself", "WAIT-04", wrapped(func(f *parity.Fixture) {
			f.First.Locks = &clannish{LockStore: f.First.Locks, handover: f.First.Handover}
		})},
		{"heartbeats fail open", "FAIL-02", wrapped(func(f *parity.Fixture) { f.First.Sessions = hopeful{f.First.Sessions} })},
	}
	return append(bugs,
		again("blip reported as lost", "LOCK-07"),
		again("token not bumped on a new grant", "FAIL-03"),
	)
}

// again plants a bug of the reference for another clause than the one that it names.
func again(name, clause string) planted {
	return planted{name, clause, referenceHarness(named(name))}
}

// named returns a bug of the reference.
func named(name string) reference.Mutant {
	all := reference.Mutants()
	return all[slices.IndexFunc(all, func(m reference.Mutant) bool { return m.Name == name })]
}

// wrapped is the sound reference's harness with something between it and whoever calls.
func wrapped(wrap func(f *parity.Fixture)) parity.Harness {
	return wrappedOver(referenceHarness(), wrap)
}

func wrappedOver(h parity.Harness, wrap func(f *parity.Fixture)) parity.Harness {
	return parity.Harness{New: func(t parity.T) parity.Fixture {
		f := h.New(t)
		wrap(&f)
		return f
	}}
}

// remembers makes both clients share the memory of one refused request.
func remembers(f *parity.Fixture) {
	m := &memory{}
	f.First.Locks, f.Second.Locks = remembering{f.First.Locks, m}, remembering{f.Second.Locks, m}
}
