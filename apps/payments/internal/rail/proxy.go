package rail

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/fencelock/fencelock/apps/payments/internal/refusal"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/turn"
)

const (
	// turnLimit bounds the wait for other calls about the account.
	turnLimit = 10 * time.Second
	// recordLimit bounds the writing of an outcome that is known, with all its tries.
	recordLimit = 15 * time.Second
	// recordPause is between those tries.
	recordPause = 200 * time.Millisecond
)

// Proxy sends each payout to the rail at most once. It is safe for concurrent use; several proxies may share a database.
type Proxy struct {
	store  *Store
	client *Client
	// limit bounds one request to the rail.
	limit   time.Duration
	observe Observer

	// turns put the transactions about one account in a row, so that a submission that is in the database is among the flights too.
	turns turn.Turns

	mu sync.Mutex
	// flights are the submissions that are being sent, by their number; the channel is closed at the end.
	flights map[int64]chan struct{}
	closed  bool
	wg      sync.WaitGroup
}

// NewProxy returns a Proxy that gives the rail so much time for an answer. [Proxy.Close] ends it.
func NewProxy(store *Store, client *Client, limit time.Duration, observe Observer) *Proxy {
	return &Proxy{store: store, client: client, limit: limit, observe: observe, flights: map[int64]chan struct{}{}}
}

// Close refuses further submissions and waits for those that have begun, until ctx ends, whose error it then returns.
func (p *Proxy) Close(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.wg.Wait()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err() //nolint:wrapcheck // it is the caller's own
	}
}

// begin counts a submission that Close waits for; ok is false if it came too late.
func (p *Proxy) begin() (ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.wg.Add(1)
	}
	return !p.closed
}

// Submit sends an order to the rail. What has begun goes on if ctx ends, and its outcome is written; the caller is told that it
// is not known yet. An outcome that the rail did not give is no error.
//
// Errors: [lock.ErrInvalid]; [lock.ErrFencedOut] for a token below the account's mark; [refusal.Duplicate] for a payout that
// was submitted before, of which nothing is sent; [lock.ErrContention], which if it is ambiguous means that the order may have
// been sent.
func (p *Proxy) Submit(ctx context.Context, token lock.Token, o Order) (Submission, error) {
	if err := errors.Join(o.check(), lock.CheckToken(token)); err != nil {
		return Submission{}, err
	}
	if !p.begin() {
		return Submission{}, lock.Contention("the proxy is stopping", false, nil)
	}
	free, err := p.take(ctx, o.Account)
	if err != nil {
		p.wg.Done()
		return Submission{}, err
	}
	type result struct {
		submission Submission
		err        error
	}
	done := make(chan result, 1)
	go func() {
		defer p.wg.Done()
		s, err := p.submit(context.WithoutCancel(ctx), free, token, o)
		done <- result{s, err}
	}()
	select {
	case r := <-done:
		return r.submission, r.err
	case <-ctx.Done():
		return Submission{}, lock.Contention("the submission goes on without its caller", true, ctx.Err())
	}
}

// take waits for the turn of an account.
func (p *Proxy) take(ctx context.Context, account string) (free func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, turnLimit)
	defer cancel()
	free, err = p.turns.Take(ctx, account)
	if err != nil {
		return nil, lock.Contention("other calls about the account are in the way", false, err)
	}
	return free, nil
}

// submit writes the intent, gives the turn back, and sends.
func (p *Proxy) submit(ctx context.Context, free func(), token lock.Token, o Order) (Submission, error) {
	s, err := p.store.intend(ctx, token, o)
	if err == nil {
		flight := p.takeOff(s.Number)
		defer p.land(s.Number, flight)
	}
	free()
	if err != nil {
		p.tellRefused(ctx, Submission{Order: o, Token: token}, false, err)
		return Submission{}, err
	}
	p.observe(ctx, Event{Kind: EventSubmitted, Submission: s})
	return p.forward(ctx, s), nil
}

// forward sends, once, and writes the outcome.
func (p *Proxy) forward(ctx context.Context, s Submission) Submission {
	call, cancel := context.WithTimeout(ctx, p.limit)
	defer cancel()
	a, err := p.client.send(call, s.Order)
	if a.outcome == Unknown {
		p.observe(ctx, Event{Kind: EventAmbiguous, Submission: s, Cause: err})
		return s
	}
	known := s
	known.Outcome, known.RailReference, known.Reason = a.outcome, a.reference, a.reason
	p.observe(ctx, Event{Kind: EventAnswered, Submission: known})
	recorded, err := p.record(ctx, s.Number, a)
	if err != nil {
		// Nobody is told what is not on disk: a payout that is over is never looked up again, and its record would stay without outcome.
		p.observe(ctx, Event{Kind: EventUnrecorded, Submission: known, Cause: err})
		return s
	}
	return recorded
}

// record writes an outcome, also where the database is away for a moment: nobody can ask the rail to say it again.
func (p *Proxy) record(ctx context.Context, number int64, a answer) (Submission, error) {
	ctx, cancel := context.WithTimeout(ctx, recordLimit)
	defer cancel()
	for {
		s, err := p.store.settle(ctx, number, a)
		if err == nil || !lock.IsRetryable(err) {
			return s, err
		}
		pause := time.NewTimer(recordPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return Submission{}, err
		}
	}
}

// Lookup tells what is known of a payout's submission, and raises the account's mark: where there is none, no holder of an
// older token can make one. It waits for a submission that this proxy is sending. Where the outcome is not known it asks the
// rail's read-only lookup, and writes what that says.
//
// Errors: [lock.ErrInvalid]; [lock.ErrFencedOut] for a token below the account's mark; [refusal.Different] for a payout that
// was submitted for another account; [lock.ErrContention], also where the submission is still being sent when ctx ends.
func (p *Proxy) Lookup(ctx context.Context, token lock.Token, payout, account string) (s Submission, there bool, err error) {
	if err := errors.Join(checkRef(payout, account), lock.CheckToken(token)); err != nil {
		return Submission{}, false, err
	}
	free, err := p.take(ctx, account)
	if err != nil {
		return Submission{}, false, err
	}
	s, there, err = p.store.look(ctx, token, payout, account)
	free()
	if err != nil {
		p.tellRefused(ctx, Submission{Order: Order{Payout: payout, Account: account}, Token: token}, true, err)
		return Submission{}, false, err
	}
	if !there || s.Outcome != Unknown {
		return s, there, nil
	}
	if flight := p.flight(s.Number); flight != nil {
		select {
		case <-flight:
		case <-ctx.Done():
			return Submission{}, false, lock.Contention("the submission is still being sent", false, ctx.Err())
		}
	}
	s, err = p.resolve(ctx, s)
	return s, err == nil, err
}

// resolve reads a submission again and, where there is still no outcome, asks the rail.
func (p *Proxy) resolve(ctx context.Context, s Submission) (Submission, error) {
	s, err := p.store.settle(ctx, s.Number, answer{})
	if err != nil || s.Outcome != Unknown {
		return s, err
	}
	call, cancel := context.WithTimeout(ctx, p.limit)
	defer cancel()
	a, executed, err := p.client.find(call, s.Order)
	if err != nil || a.outcome == Unknown {
		// That the rail knows nothing proves nothing: the order may still be on its way.
		p.observe(ctx, Event{Kind: EventStillAmbiguous, Submission: s, Lookup: true, Cause: err})
		return s, nil
	}
	s, err = p.store.settle(ctx, s.Number, a)
	if err != nil {
		return Submission{}, err
	}
	s.Transfers = executed
	p.observe(ctx, Event{Kind: EventResolved, Submission: s, Lookup: true})
	return s, nil
}

// List lists a page of all submissions; see [Store.List].
func (p *Proxy) List(ctx context.Context, size int32, token string) ([]Submission, string, error) {
	return p.store.List(ctx, size, token)
}

// tellRefused tells of refusals that mean something.
func (p *Proxy) tellRefused(ctx context.Context, s Submission, lookup bool, err error) {
	switch {
	case errors.Is(err, lock.ErrFencedOut):
		p.observe(ctx, Event{Kind: EventFencedOut, Submission: s, Lookup: lookup, Cause: err})
	case refusal.CodeOf(err) == refusal.Duplicate:
		p.observe(ctx, Event{Kind: EventDuplicate, Submission: s, Lookup: lookup})
	}
}

func (p *Proxy) takeOff(number int64) chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	flight := make(chan struct{})
	p.flights[number] = flight
	return flight
}

func (p *Proxy) land(number int64, flight chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.flights, number)
	close(flight)
}

func (p *Proxy) flight(number int64) chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.flights[number]
}
