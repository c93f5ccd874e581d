package service

import (
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

const (
	// fullRetryAfter is what a caller that found a full queue is told.
	fullRetryAfter = time.Second
	// maxChains bounds the memory of handoff chains. Forgetting one costs other
	// servers at most one more round of handoffs.
	maxChains = 4096
	// handoffQuiet is how long a new head leaves the store alone after a handoff: on a busy key the
	// next handoff comes sooner, and its try would only stand in that one's way.
	handoffQuiet = 10 * time.Millisecond
)

// lines are the queues of this server, one per key that somebody waits for.
// Its lock is never held across a store call.
type lines struct {
	maxPerKey, maxTotal int

	mu        sync.Mutex
	byKey     map[lock.Key]*line
	bySession map[lock.SessionID]map[name]*place
	// calls are the acquires in flight, with a place or without one: each may have a try under way.
	calls  map[asked][]*call
	chains map[lock.Key]chain
	total  int
}

// asked is what a request is known by.
type asked struct {
	session lock.SessionID
	name    name
}

// line is the queue of one key.
type line struct {
	places []*place // first come first
	// holder is who was last seen in the way; its token never goes back.
	holder lock.Holder
	// notBefore is the moment of the clock before which the head does not contend.
	notBefore time.Duration
}

// name tells the places of one session apart.
type name struct {
	key lock.Key
	id  lock.RequestID
}

// place is a request's place in a line. The call that stands in it may change: a
// retry of the same request takes it over.
type place struct {
	req  port.GrantRequest
	line *line
	gone bool // out of the line
	call *call
	// offer is closed when the handoff in flight to this request has ended; nil if none is.
	offer chan struct{}
	// doubt is set while a store call may still have granted, or may yet grant.
	doubt *doubt
	// granted: the grant has been reported.
	granted bool
}

// doubt remembers a call with an unknown outcome.
type doubt struct {
	// from is the grant that an unsettled handoff may yet end; 0 for a try. While that
	// grant lives the handoff can still happen.
	from lock.Token
}

// chain counts the handoffs in a row that led to a grant.
type chain struct {
	token lock.Token
	count int
}

// call is one acquire in flight.
type call struct {
	arrived  time.Duration
	left     <-chan struct{} // the caller's context has ended
	nudge    chan struct{}   // the head may try now
	answers  chan answer     // receives one answer when the call loses its place, or may not take one
	answered bool
	over     chan struct{} // closed when the call makes no more tries
}

// answer tells the call how its wait has ended, once.
func (c *call) answer(a answer) {
	if !c.answered {
		c.answered = true
		c.answers <- a
	}
}

// answer ends a wait: a grant, or an error.
type answer struct {
	grant lock.Grant
	// began is when the store call that granted began.
	began time.Duration
	err   error
}

func newLines(maxPerKey, maxTotal int) *lines {
	return &lines{
		maxPerKey: maxPerKey,
		maxTotal:  maxTotal,
		byKey:     map[lock.Key]*line{},
		bySession: map[lock.SessionID]map[name]*place{},
		calls:     map[asked][]*call{},
		chains:    map[lock.Key]chain{},
	}
}

func newCall(arrived time.Duration, left <-chan struct{}) *call {
	return &call{
		arrived: arrived,
		left:    left,
		nudge:   make(chan struct{}, 1),
		answers: make(chan answer, 1),
		over:    make(chan struct{}),
	}
}

// enter notes a call in flight and reports whether others stand in line for its key.
func (l *lines) enter(req port.GrantRequest, c *call) (busy bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := asked{req.Session, name{req.Key, req.RequestID}}
	l.calls[a] = append(l.calls[a], c)
	return l.byKey[req.Key] != nil
}

// exit notes that the call makes no more tries.
func (l *lines) exit(req port.GrantRequest, c *call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(c.over)
	a := asked{req.Session, name{req.Key, req.RequestID}}
	if rest := slices.DeleteFunc(l.calls[a], func(other *call) bool { return other == c }); len(rest) > 0 {
		l.calls[a] = rest
	} else {
		delete(l.calls, a)
	}
}

// join puts the call at the end of the line of its key, or into the place that
// its request already has. A call that was abandoned meanwhile gets neither.
func (l *lines) join(req port.GrantRequest, c *call, holder lock.Holder, inDoubt bool) (*place, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.answered {
		return nil, (<-c.answers).err
	}
	p := l.find(req)
	if p != nil {
		p.call.answer(answer{err: lock.Contention("a retry of this request waits in its place", true, nil)})
		p.req, p.call = req, c
	} else {
		ln := l.byKey[req.Key]
		if err := l.room(ln, inDoubt); err != nil {
			return nil, err
		}
		if ln == nil {
			ln = &line{}
			l.byKey[req.Key] = ln
		}
		p = &place{req: req, line: ln, call: c}
		ln.places = append(ln.places, p)
		l.index(p)
	}
	p.line.see(holder)
	if inDoubt && p.doubt == nil {
		p.doubt = &doubt{}
	}
	return p, nil
}

// room refuses one more waiter where a limit is reached.
func (l *lines) room(ln *line, inDoubt bool) error {
	full := func(what string, limit int) error {
		return &lock.Error{
			Code:           lock.CodeTooManyWaiters,
			Message:        what + " of this server is reached (limit " + strconv.Itoa(limit) + ")",
			OutcomeUnknown: inDoubt,
			RetryAfter:     fullRetryAfter,
		}
	}
	if ln != nil && len(ln.places) >= l.maxPerKey {
		return full("the number of waiters per key", l.maxPerKey)
	}
	if l.total >= l.maxTotal {
		return full("the number of waiters", l.maxTotal)
	}
	return nil
}

func (l *lines) index(p *place) {
	named := l.bySession[p.req.Session]
	if named == nil {
		named = map[name]*place{}
		l.bySession[p.req.Session] = named
	}
	named[name{p.req.Key, p.req.RequestID}] = p
	l.total++
}

// unindex forgets a place that is out of its line. While an offer to it is in
// flight it stays known, for an abandon to await.
func (l *lines) unindex(p *place) {
	if !p.gone || p.offer != nil {
		return
	}
	named, n := l.bySession[p.req.Session], name{p.req.Key, p.req.RequestID}
	if named[n] == p {
		delete(named, n)
	}
	if len(named) == 0 {
		delete(l.bySession, p.req.Session)
	}
}

// find returns the place in line of a request, nil if it has none.
func (l *lines) find(req port.GrantRequest) *place {
	p := l.bySession[req.Session][name{req.Key, req.RequestID}]
	if p == nil || p.gone {
		return nil
	}
	return p
}

// remove takes the place out of its line and lets the next one try.
func (l *lines) remove(p *place) {
	ln := p.line
	at := slices.Index(ln.places, p)
	ln.places = slices.Delete(ln.places, at, at+1)
	p.gone = true
	l.total--
	l.unindex(p)
	if len(ln.places) == 0 {
		delete(l.byKey, p.req.Key)
	} else if at == 0 {
		ln.nudge()
	}
}

// resolve ends the wait of a place with an answer, unless it has ended before, and ends the
// offer in flight, if any. It reports whether it was the first. by is the call that
// knows the answer already, nil if none does.
func (l *lines) resolve(p *place, by *call, a answer) (first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a.err == nil {
		p.line.see(holderOf(a.grant))
	}
	return l.end(p, by, a)
}

func (l *lines) end(p *place, by *call, a answer) (first bool) {
	l.endOffer(p)
	if p.gone {
		return false
	}
	l.remove(p)
	p.granted = a.err == nil
	if p.call != by {
		p.call.answer(a)
	}
	return true
}

// state is what the head of a line needs to know.
type state struct {
	// head: the call stands first in line.
	head bool
	// pause is how long it has to leave the store alone.
	pause time.Duration
	// observed is the token last seen in the way.
	observed lock.Token
}

// look tells the call where it stands.
func (l *lines) look(p *place, c *call, now time.Duration) state {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.gone || p.call != c || p.line.places[0] != p {
		return state{}
	}
	return state{head: true, pause: max(0, p.line.notBefore-now), observed: p.line.holder.Token}
}

// saw notes who stood in the way of the place's own try.
func (l *lines) saw(p *place, c *call, holder lock.Holder) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p.line.see(holder)
	// A handoff can happen as long as the grant that it ends is there. The try of
	// a call that has lost its place says nothing about a later one.
	if p.call == c && p.doubt != nil && holder.Token > p.doubt.from {
		p.doubt = nil
	}
}

// doubts notes that the place's own try may have granted.
func (l *lines) doubts(p *place) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.doubt == nil {
		p.doubt = &doubt{}
	}
}

// departure is what leaving a line brings.
type departure struct {
	// answered is the answer that came first.
	answered *answer
	// offer must end before the call may leave.
	offer <-chan struct{}
	// unknown says that a grant may have been made or may yet be made; unsettled that
	// only the end of the grant in the way will tell.
	unknown, unsettled bool
	holder             lock.Holder
}

// leave takes the call out of the line. If a handoff to it is in flight it stays, unless forced.
func (l *lines) leave(p *place, c *call, force bool) departure {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case a := <-c.answers:
		return departure{answered: &a}
	default:
	}
	if p.offer != nil && !force {
		return departure{offer: p.offer}
	}
	d := departure{
		unknown:   p.doubt != nil || p.offer != nil,
		unsettled: p.offer != nil || p.doubt != nil && p.doubt.from != 0,
		holder:    p.line.holder,
	}
	l.remove(p)
	return d
}

// has reports whether the request has a place.
func (l *lines) has(req port.GrantRequest) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.find(req) != nil
}

// front returns how many wait for the key, and who was last seen in their way.
func (l *lines) front(key lock.Key) (waiters int, holder lock.Holder) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ln := l.byKey[key]
	if ln == nil {
		return 0, lock.Holder{}
	}
	return len(ln.places), ln.holder
}

// waiters returns how many wait in all.
func (l *lines) waiters() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total
}

// see keeps the newest holder.
func (ln *line) see(holder lock.Holder) {
	if holder.Token >= ln.holder.Token {
		ln.holder = holder
	}
}

// nudge lets the head try.
func (ln *line) nudge() {
	select {
	case ln.places[0].call.nudge <- struct{}{}:
	default:
	}
}

// endOffer notes that the handoff in flight to the place, if any, has ended.
func (l *lines) endOffer(p *place) {
	if p.offer != nil {
		close(p.offer)
		p.offer = nil
		l.unindex(p)
	}
}

func holderOf(g lock.Grant) lock.Holder {
	return lock.Holder{Owner: g.Owner, Session: g.Session, Token: g.Token, AcquiredAt: g.AcquiredAt}
}
