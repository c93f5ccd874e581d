package server

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/service"
)

const (
	probeEvery   = time.Second
	probeTimeout = 2 * time.Second
)

// probed is the service, as far as a probe asks it.
type probed interface {
	Ping(ctx context.Context) error
	Status() service.Status
}

// probe asks the store once per second whether it can grant, so that anybody may ask for readiness
// without asking the store.
type probe struct {
	service probed
	logger  *slog.Logger
	last    atomic.Pointer[answer]
}

type answer struct {
	err error
	// asked tells an answer of the store from the time before the first.
	asked bool
}

// reason is what is wrong, in words that stay the same while it is: the driver's own may name the port of each try.
func (a answer) reason() string {
	if e, ok := errors.AsType[*lock.Error](a.err); ok {
		return e.Message
	}
	return "unknown"
}

func newProbe(svc probed, logger *slog.Logger) *probe {
	p := &probe{service: svc, logger: logger}
	p.last.Store(&answer{err: lock.Contention("the store was not asked yet", false, nil)})
	return p
}

// ask asks the store now, keeps the answer and logs a change, also of the reason. The first answer is a change only if it is bad.
func (p *probe) ask(ctx context.Context) {
	call, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	err := p.service.Ping(call)
	if ctx.Err() != nil {
		return // the server is stopping: that says nothing about the store
	}
	now := &answer{err: err, asked: true}
	last := p.last.Swap(now)
	switch {
	case err != nil && (last.err == nil || !last.asked || last.reason() != now.reason()):
		p.logger.LogAttrs(ctx, slog.LevelWarn, "not_ready", slog.Any("reason", err))
	case err == nil && last.err != nil && last.asked:
		p.logger.LogAttrs(ctx, slog.LevelInfo, "ready_again", slog.Any("reason", last.err))
	}
}

// ready is nil if the store could grant a moment ago and the server is not stopping.
func (p *probe) ready(context.Context) error {
	if p.service.Status().Draining {
		return lock.Contention("the server is draining", false, nil)
	}
	return p.last.Load().err
}
