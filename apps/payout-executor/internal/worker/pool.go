package worker

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/apps/payout-executor/internal/payout"
)

const (
	// scanTimeout bounds one poll.
	scanTimeout = 30 * time.Second
	// hungry divides the interval of polls for a pool that has nothing to do while there is progress.
	hungry = 10
	// lookEvery is how many intervals pass between two polls for ambiguous payouts.
	lookEvery = 5
)

// ErrCutShort says that work was still going on when [Pool.Stop] had to return. Its locks must not be released.
var ErrCutShort = errors.New("stop: work is still going on")

// Config is how a pool works.
type Config struct {
	// Backlog lists the payouts.
	Backlog Backlog
	// Execute executes one.
	Execute func(ctx context.Context, p payout.Payout) payout.Result
	// Concurrency is how many payouts are in work at once.
	Concurrency int
	// Interval of polls, give or take a half.
	Interval time.Duration
	// Failed is told why a poll has failed.
	Failed func(error)
	// Idle is called when there is nothing to do any more, after work and at the start.
	Idle func()
}

// Pool executes payouts until it is stopped.
type Pool struct {
	cfg     Config
	book    *book
	scanner scanner
	// oldest is when the oldest payout of the last poll was asked for, in nanoseconds; 0 for none.
	oldest atomic.Int64

	scanned chan scan
	ended   chan ending
	// work is the life of executions, polls that of polls.
	work, polls         context.Context //nolint:containedctx // this type is that life
	stopWork, stopPolls context.CancelFunc
	done                chan struct{}
	running             sync.WaitGroup

	// Of the loop alone.
	scanning bool
	// rested: nothing was done since Idle was called.
	rested bool
	// last is when the last poll began, and looked when the last one for ambiguous payouts did.
	last, looked time.Time
	// wait is from one poll to the next, and gap if there are places free: it grows to wait while there is no progress.
	wait, gap time.Duration
}

type ending struct {
	payout payout.Payout
	result payout.Result
}

// New returns a Pool that does nothing yet.
func New(cfg Config) *Pool {
	p := &Pool{
		cfg:     cfg,
		book:    newBook(),
		scanner: scanner{backlog: cfg.Backlog, accounts: accountsPerPlace * cfg.Concurrency, next: map[string]string{}},
		scanned: make(chan scan, 1),
		ended:   make(chan ending, cfg.Concurrency),
		done:    make(chan struct{}),
	}
	// The pool lives until Stop, not as long as any caller's context.
	p.work, p.stopWork = context.WithCancel(context.Background())
	p.polls, p.stopPolls = context.WithCancel(p.work)
	return p
}

// Start begins. It returns at once.
func (p *Pool) Start() { go p.loop() }

// Stop takes nothing new and waits for what is in work, until ctx ends: then the executions are told to end, and the
// error is [ErrCutShort].
func (p *Pool) Stop(ctx context.Context) error {
	p.stopPolls()
	select {
	case <-p.done:
		p.stopWork()
		return nil
	case <-ctx.Done():
		p.stopWork()
		return ErrCutShort
	}
}

// Age is how old the oldest payout is that is neither over nor ambiguous, as of the last poll; 0 if there is none.
func (p *Pool) Age() time.Duration {
	oldest := p.oldest.Load()
	if oldest == 0 {
		return 0
	}
	return max(0, time.Since(time.Unix(0, oldest)))
}

// loop owns the book.
func (p *Pool) loop() {
	defer close(p.done)
	defer p.running.Wait()
	for p.polls.Err() == nil {
		p.fill()
		timer := time.NewTimer(p.pause(time.Now()))
		select {
		case <-p.polls.Done():
		case e := <-p.ended:
			p.take(e)
		case s := <-p.scanned:
			p.read(s)
		case <-timer.C:
		}
		timer.Stop()
	}
	for p.book.inWork > 0 {
		p.take(<-p.ended)
	}
}

// fill gives every free place a payout, and polls if that is due.
func (p *Pool) fill() {
	now := time.Now()
	for p.book.inWork < p.cfg.Concurrency {
		next, ok := p.book.next(now)
		if !ok {
			break
		}
		p.running.Go(func() { p.ended <- ending{next, p.cfg.Execute(p.work, next)} })
	}
	if !p.scanning && p.due(now) <= 0 {
		p.poll(now)
	}
}

// due is how long it is until the next poll.
func (p *Pool) due(now time.Time) time.Duration {
	if p.last.IsZero() {
		return 0
	}
	wait := p.wait
	if p.book.inWork < p.cfg.Concurrency {
		wait = p.gap
	}
	return p.last.Add(wait).Sub(now)
}

// pause is how long the loop may sleep if nothing happens.
func (p *Pool) pause(now time.Time) time.Duration {
	pause := time.Hour
	if !p.scanning {
		pause = p.due(now)
	}
	if wake := p.book.wake(now); !wake.IsZero() && p.book.inWork < p.cfg.Concurrency {
		pause = min(pause, wake.Sub(now))
	}
	return max(pause, time.Millisecond)
}

func (p *Pool) poll(now time.Time) {
	look := now.Sub(p.looked) >= lookEvery*p.cfg.Interval
	if look {
		p.looked = now
	}
	p.scanning, p.last = true, now
	p.wait = jittered(p.cfg.Interval)
	p.gap = min(p.wait, 2*max(p.gap, p.cfg.Interval/hungry))
	p.book.polling(now)
	waits := p.book.waits(now)
	p.running.Go(func() {
		ctx, cancel := context.WithTimeout(p.polls, scanTimeout)
		defer cancel()
		p.scanned <- p.scanner.run(ctx, look, waits)
	})
}

func (p *Pool) read(s scan) {
	p.scanning = false
	if s.err != nil {
		if p.polls.Err() == nil {
			p.cfg.Failed(s.err)
		}
		return
	}
	p.oldest.Store(0)
	if !s.oldest.IsZero() {
		p.oldest.Store(s.oldest.UnixNano())
	}
	p.book.polled(s.waiting)
	if s.looked {
		p.book.looked(s.ambiguous)
	}
	if p.book.inWork == 0 && len(s.waiting) == 0 && !p.rested {
		p.rested = true
		p.cfg.Idle()
	}
}

// take files a result. Progress, here or elsewhere, makes a poll worth while.
func (p *Pool) take(e ending) {
	p.book.ended(e.payout, e.result, time.Now())
	p.rested = false
	switch e.result.Outcome {
	case payout.Posted, payout.Failed, payout.Abandoned, payout.Ambiguous, payout.Over:
		p.gap = min(p.gap, jittered(p.cfg.Interval/hungry))
	case payout.Contended, payout.Unresolved, payout.Reserved, payout.Left:
	}
}

// jittered is d, give or take a half.
func jittered(d time.Duration) time.Duration { return d/2 + rand.N(d+1) } //nolint:gosec // jitter is no secret
