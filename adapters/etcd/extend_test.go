package etcd_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

// TestExtensionHidesNoGrant: an extension puts the grant on a new lease and ends the old one. A look that
// still knows the old one must not take its end for the end of the grant.
func TestExtensionHidesNoGrant(t *testing.T) {
	t.Parallel()
	const extensions = 300
	p := newPlace(t)
	session := p.open(lock.MaxTTL)
	req := request(key(t, "long"), session.ID)
	req.Lease = time.Minute
	g := p.grabWith(req)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	looks := map[string]func() (found bool, err error){
		"LocksOf": func() (bool, error) {
			list, err := p.LocksOf(t.Context(), session.ID)
			return len(list) == 1, err
		},
		"Settle": func() (bool, error) {
			_, ok, err := p.Settle(t.Context(), g.Key, session.ID, req.RequestID)
			return ok, err
		},
		"Read": func() (bool, error) {
			info, err := p.Read(t.Context(), g.Key)
			return info.Held, err
		},
		"Grants": func() (bool, error) {
			list, _, err := p.Grants(t.Context(), g.Key.Namespace(), "", port.Page{Size: 10})
			return len(list) == 1, err
		},
		"a repeated acquire": func() (bool, error) {
			a, err := p.TryInsert(t.Context(), req)
			return a.Granted && a.Grant.Token == g.Token, err
		},
	}
	var lookers sync.WaitGroup
	for name, look := range looks {
		lookers.Go(func() {
			for ctx.Err() == nil {
				if found, err := look(); !found || err != nil {
					t.Errorf("%s has not seen a grant that is being extended: %v", name, err)
					return
				}
			}
		})
	}
	for i := range extensions {
		if _, err := p.Extend(t.Context(), g.Key, session.ID, g.Token, time.Minute+time.Duration(i)*time.Second); err != nil {
			t.Errorf("extend: %v", err)
			break
		}
	}
	cancel()
	lookers.Wait()
}
