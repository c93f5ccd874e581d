package service

import (
	"time"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

// offer picks the waiter to whom the grant is handed over. nil means a plain
// release, after which the line yields once if exhausted: limit handoffs have followed one
// another. The caller ends the offer with handed, kept or resolve.
func (l *lines) offer(from port.GrantRef, limit int) (p *place, req port.GrantRequest, exhausted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ln := l.byKey[from.Key]
	if ln == nil || limit < 0 {
		return nil, req, false
	}
	if c := l.chains[from.Key]; c.token == from.Token && c.count >= limit {
		return nil, req, true
	}
	for _, p := range ln.places {
		select {
		case <-p.call.left:
			continue // about to leave
		default:
		}
		if p.offer != nil {
			break // another release hands over to the head; this one may be its retry
		}
		p.offer = make(chan struct{})
		return p, p.req, false
	}
	return nil, req, false
}

// handed ends an offer whose handoff happened. It reports whether this is the
// first report of the grant: the waiter's own try may have found it.
func (l *lines) handed(p *place, from port.GrantRef, a answer, now time.Duration) (first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	count := 1
	if c := l.chains[from.Key]; c.token == from.Token {
		count += c.count
	}
	l.remember(from.Key, chain{token: a.grant.Token, count: count})
	p.line.see(holderOf(a.grant))
	p.line.notBefore = now + handoffQuiet
	first = !p.granted
	l.end(p, nil, a)
	p.granted = true
	return first
}

func (l *lines) remember(key lock.Key, c chain) {
	if _, known := l.chains[key]; !known && len(l.chains) >= maxChains {
		for other := range l.chains {
			delete(l.chains, other)
			break
		}
	}
	l.chains[key] = c
}

// kept ends an offer whose handoff did not happen, or of which that is unknown.
func (l *lines) kept(p *place, unknown *doubt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.endOffer(p)
	if p.gone {
		return
	}
	if unknown != nil {
		p.doubt = unknown
	}
	p.line.notBefore = 0
	p.line.nudge()
}

// freed lets the head of the key try at once, after a pause if other servers come first.
func (l *lines) freed(key lock.Key, notBefore time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.chains, key)
	if ln := l.byKey[key]; ln != nil {
		ln.notBefore = notBefore
		ln.nudge()
	}
}

// freedAll does the same for all keys whose holder was last seen to match.
func (l *lines) freedAll(match func(lock.Holder) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, ln := range l.byKey {
		if match(ln.holder) {
			delete(l.chains, key)
			ln.notBefore = 0
			ln.nudge()
		}
	}
}

// sessionOver answers all waiters of a session that is over.
func (l *lines) sessionOver(session lock.SessionID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.bySession[session] {
		if !p.gone {
			l.remove(p)
			p.call.answer(answer{err: lock.ErrSessionDead})
		}
	}
}

// withdraw ends the waits of an abandoned request. It returns what to await before
// no store call of this server can grant the request any more: the handoff to it, and all its calls,
// also those that have no place yet or have lost it, for each may be in the middle of a try.
func (l *lines) withdraw(key lock.Key, session lock.SessionID, id lock.RequestID) (pending []<-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := name{key, id}
	if p := l.bySession[session][n]; p != nil {
		if p.offer != nil {
			pending = append(pending, p.offer)
		}
		if !p.gone {
			l.remove(p)
		}
	}
	for _, c := range l.calls[asked{session, n}] {
		c.answer(answer{err: lock.Contention("the request was abandoned", true, nil)})
		pending = append(pending, c.over)
	}
	return pending
}
