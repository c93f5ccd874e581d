package server

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/service"
)

const (
	probeEvery   = time.Second
	probeTimeout = 2 * time.Second
)

// probe asks the store once per second whether it can grant, so that anybody may ask for readiness
// without asking the store.
type probe struct {
	service *service.Service
	last    atomic.Pointer[answer]
}

type answer struct{ err error }

func newProbe(svc *service.Service) *probe {
	p := &probe{service: svc}
	p.last.Store(&answer{err: lock.Contention("the store was not asked yet", false, nil)})
	return p
}

// ask asks the store now and keeps the answer.
func (p *probe) ask(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	p.last.Store(&answer{err: p.service.Ping(ctx)})
}

// ready is nil if the store could grant a moment ago and the server is not stopping.
func (p *probe) ready(context.Context) error {
	if p.service.Status().Draining {
		return lock.Contention("the server is draining", false, nil)
	}
	return p.last.Load().err
}
