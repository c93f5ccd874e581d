package executor

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/core/lock"
)

const (
	probeEvery   = 2 * time.Second
	probeTimeout = 2 * time.Second
)

// target is something that an execution needs.
type target struct {
	name string
	ping func(ctx context.Context) error
}

// probe asks on a beat whether all that an execution needs can be reached, so that anybody may ask for readiness without asking them.
type probe struct {
	targets []target
	logger  *slog.Logger
	// last is what the last round found; nil before the first.
	last     atomic.Pointer[round]
	stopping atomic.Bool
	cancel   context.CancelFunc
	running  sync.WaitGroup
}

// round is one round of questions.
type round struct {
	// away are the names of what did not answer, and err the last reason.
	away string
	err  error
}

// start asks at once and then on the beat, until stop.
func (p *probe) start(ctx context.Context) {
	ctx, p.cancel = context.WithCancel(context.WithoutCancel(ctx))
	p.running.Go(func() {
		ticker := time.NewTicker(probeEvery)
		defer ticker.Stop()
		for {
			p.ask(ctx)
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
		}
	})
}

// drain makes the probe say that the executor takes no more work.
func (p *probe) drain() { p.stopping.Store(true) }

func (p *probe) stop() {
	p.cancel()
	p.running.Wait()
}

// ask asks all targets, keeps what was found and logs a change. The first round is a change only if it is bad.
func (p *probe) ask(ctx context.Context) {
	call, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	errs := make([]error, len(p.targets))
	var asking sync.WaitGroup
	for i, t := range p.targets {
		asking.Go(func() { errs[i] = t.ping(call) })
	}
	asking.Wait()
	if ctx.Err() != nil {
		return // the executor is stopping: that says nothing about the others
	}
	now := round{}
	var away []string
	for i, err := range errs {
		if err != nil {
			away, now.err = append(away, p.targets[i].name), err
		}
	}
	now.away = strings.Join(away, ", ")
	last := p.last.Swap(&now)
	switch {
	case now.away != "" && (last == nil || last.away != now.away):
		p.logger.LogAttrs(ctx, slog.LevelWarn, "not_ready", slog.String("away", now.away), slog.Any("reason", now.err))
	case now.away == "" && last != nil && last.away != "":
		p.logger.LogAttrs(ctx, slog.LevelInfo, "ready_again", slog.String("away", last.away))
	}
}

// ready is nil if a moment ago everything answered and the executor is not stopping.
func (p *probe) ready(context.Context) error {
	last := p.last.Load()
	switch {
	case p.stopping.Load():
		return lock.Contention("the executor is stopping", false, nil)
	case last == nil:
		return lock.Contention("nothing was asked yet", false, nil)
	case last.away != "":
		return lock.Contention("no answer from "+last.away, false, nil)
	}
	return nil
}
