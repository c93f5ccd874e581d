package history

import (
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/fencelock/fencelock/core/lock"
)

// Report says how much a judged history had to say.
type Report struct {
	// Operations counts what was judged, Unknown the lost answers among it.
	Operations, Unknown int
	// Grants counts distinct grants that were answered, Keys those with a history.
	Grants, Keys int
	// Undecided are the keys whose order was not found, and not refuted, in time.
	Undecided []lock.Key
}

// Check judges a history. The error says what no fenced lock can have
// answered. patience bounds the search for an order of one key.
func Check(operations []Operation, patience time.Duration) (Report, error) {
	operations = slices.DeleteFunc(slices.Clone(operations), func(o Operation) bool {
		return o.Status == Void || o.Status == Unknown && !o.Kind.writes()
	})
	report := Report{Operations: len(operations)}
	for _, o := range operations {
		if o.Status == Unknown {
			report.Unknown++
		}
	}
	grants, err := checkTokens(operations)
	report.Grants = grants
	err = errors.Join(err, checkSessions(operations))
	p := partition(operations)
	report.Keys = len(p.keys)
	for _, key := range p.keys {
		result := p.search(key, patience)
		if result == porcupine.Illegal {
			err = errors.Join(err, fmt.Errorf("key %v: no order of these calls fits:%s", key, p.story(key)))
		}
		if result == porcupine.Unknown {
			report.Undecided = append(report.Undecided, key)
		}
	}
	return report, err
}

// parts is a history split by key, sessions numbered.
type parts struct {
	keys    []lock.Key
	entries map[lock.Key][]entry
	numbers map[lock.SessionID]uint32 // from 1
	last    uint32
	model   *model
	// touched lists the keys that a session's operations name.
	touched map[lock.SessionID]map[lock.Key]bool
}

// partition splits a history by key. Into each key that a session touched go also what
// proves that it lived or died; see vital.
func partition(operations []Operation) *parts {
	p := &parts{
		entries: map[lock.Key][]entry{}, numbers: map[lock.SessionID]uint32{},
		model: &model{alive: []time.Duration{never}}, touched: map[lock.SessionID]map[lock.Key]bool{},
	}
	for i := range operations {
		o := &operations[i]
		p.learn(o)
		if !o.Key.IsZero() {
			p.add(o.Key, p.entry(o))
			p.touch(o.Session, o.Key)
			p.touch(o.From, o.Key)
		}
		for _, g := range o.Locks {
			p.touch(o.Session, g.Key)
		}
	}
	ends := ends(operations)
	for _, o := range vital(operations, ends) {
		for key := range p.touched[o.Session] {
			if o.Key == key {
				continue // it is there
			}
			in := p.entry(o)
			for _, g := range o.Locks {
				if g.Key == key {
					in.found = g.Token
				}
			}
			p.add(key, in)
		}
	}
	for _, key := range p.keys {
		p.bound(key, ends)
	}
	slices.SortFunc(p.keys, func(a, b lock.Key) int { return strings.Compare(a.String(), b.String()) })
	return p
}

// ends returns, per session, the first answer that proved it over.
func ends(operations []Operation) map[lock.SessionID]*Operation {
	over := map[lock.SessionID]*Operation{}
	for i := range operations {
		o := &operations[i]
		if o.Status == Gone || o.Kind == Close && o.Status == OK {
			if first := over[o.Session]; first == nil || o.Return < first.Return {
				over[o.Session] = o
			}
		}
	}
	return over
}

// vital returns the operations that bear on all keys of their sessions: closes, lists, the
// last confirmed sign of life and the first that proved the end. Others would add nothing.
func vital(operations []Operation, ends map[lock.SessionID]*Operation) []*Operation {
	var all []*Operation
	last := map[lock.SessionID]*Operation{}
	for i := range operations {
		o := &operations[i]
		switch {
		case ends[o.Session] == o, o.Kind == Close, o.Kind == LocksOf && o.Status == OK:
			all = append(all, o)
		case o.Status == OK && (o.Kind == Open || o.Kind == Heartbeat):
			if l := last[o.Session]; l == nil || o.Call > l.Call {
				last[o.Session] = o
			}
		}
	}
	for _, o := range last {
		all = append(all, o)
	}
	return all
}

// bound limits when a write with a lost answer can have taken effect. It has none once its session
// is proved over, nor, where it names a token, once a higher one was granted. Placed
// then, it means "never", as the end of time does, and leaves the search less choice.
func (p *parts) bound(key lock.Key, ends map[lock.SessionID]*Operation) {
	entries := p.entries[key]
	for i := range entries {
		in := &entries[i]
		if in.Status != Unknown {
			continue
		}
		for _, id := range []lock.SessionID{in.Session, in.From} {
			if end := ends[id]; end != nil {
				in.until = min(in.until, end.Return)
			}
		}
		for _, o := range entries {
			if in.Token != 0 && o.Status == OK && (o.Kind == Acquire || o.Kind == Handoff) && o.Answer > in.Token {
				in.until = min(in.until, o.Return)
			}
		}
	}
	p.entries[key] = slices.DeleteFunc(entries, func(in entry) bool { return in.until < in.Call })
}

func (p *parts) number(id lock.SessionID) uint32 {
	if id.IsZero() {
		return 0
	}
	n, known := p.numbers[id]
	if !known {
		p.last++
		n = p.last
		p.numbers[id] = n
		p.model.alive = append(p.model.alive, never)
	}
	return n
}

// learn notes until when an operation proves its session alive.
func (p *parts) learn(o *Operation) {
	n := p.number(o.Session)
	if o.Status == OK && (o.Kind == Open || o.Kind == Heartbeat) {
		p.model.alive[n] = max(p.model.alive[n], o.Call+shrink(o.Remaining))
	}
}

func (p *parts) entry(o *Operation) entry {
	in := entry{Operation: o, until: o.Return, session: p.number(o.Session), from: p.number(o.From)}
	if o.Kind == Revoke {
		in.from = p.number(o.Deposed)
	}
	return in
}

func (p *parts) touch(id lock.SessionID, key lock.Key) {
	if p.touched[id] == nil {
		p.touched[id] = map[lock.Key]bool{}
	}
	p.touched[id][key] = true
}

func (p *parts) add(key lock.Key, in entry) {
	if _, known := p.entries[key]; !known {
		p.keys = append(p.keys, key)
	}
	p.entries[key] = append(p.entries[key], in)
}

// search lets porcupine look for an order of one key's calls.
func (p *parts) search(key lock.Key, patience time.Duration) porcupine.CheckResult {
	history := make([]porcupine.Operation, 0, len(p.entries[key]))
	for _, in := range p.entries[key] {
		history = append(history, porcupine.Operation{
			ClientId: in.Process, Input: in, Call: int64(in.Call), Return: int64(in.until),
		})
	}
	seed := maphash.MakeSeed()
	return porcupine.CheckOperationsTimeout(porcupine.Model{
		Init: func() any { return state{} },
		Step: func(s, input, _ any) (bool, any) {
			before, _ := s.(state)
			in, _ := input.(entry)
			after, ok := p.model.step(before, in)
			return ok, after
		},
		Hash: func(s any) uint64 { return maphash.Comparable(seed, s) },
	}, history, patience)
}

// storyLength bounds how much of a history an error shows.
const storyLength = 60

// story shows the operations of a key, the latest if there are many.
func (p *parts) story(key lock.Key) string {
	operations := make([]Operation, 0, len(p.entries[key]))
	for _, in := range p.entries[key] {
		operations = append(operations, *in.Operation)
	}
	slices.SortFunc(operations, func(a, b Operation) int { return cmp.Compare(a.Call, b.Call) })
	return describe(operations[max(0, len(operations)-storyLength):])
}
