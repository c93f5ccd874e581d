package rail_test

import (
	"math"
	"strings"
	"sync"
	"testing"

	"github.com/fencelock/fencelock/apps/payments/internal/bank"
	"github.com/fencelock/fencelock/apps/payments/internal/rail"
	"github.com/fencelock/fencelock/apps/payments/internal/refusal"
	"github.com/fencelock/fencelock/core/lock"
)

func TestASubmissionIsSentAndItsOutcomeWritten(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.proxy(true)
	s := w.submit(p, 33, order("p", "d"))
	if s.Order != order("p", "d") || s.Token != 33 || s.Outcome != rail.Acked || s.RailReference != "t-1" || s.SubmittedAt.IsZero() {
		t.Errorf("submitted %+v", s)
	}
	if again, there := w.lookup(p, 33, "p"); !there || again != s {
		t.Errorf("looked up %+v, submitted %+v", again, s)
	}
	s = w.submit(p, 34, order("q", bank.ToDecline))
	if s.Outcome != rail.Rejected || s.Reason == "" {
		t.Errorf("declined: %+v", s)
	}
	if again, there := w.lookup(p, 34, "q"); !there || again != s {
		t.Errorf("looked up %+v, submitted %+v", again, s)
	}
	equal(t, "rail", w.executed(), "p executed, q declined")
	equal(t, "events", w.kinds(), "rail_submitted rail_answered rail_submitted rail_answered")
}

func TestASecondSubmissionIsRefusedAndNotSent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p, other := w.proxy(true), w.proxy(true)
	w.submit(p, 33, order("p", "d"))
	changed := order("p", "d")
	changed.Amount = 6
	elsewhere := order("p", "d")
	elsewhere.Account = "b"
	for what, o := range map[string]rail.Order{"the same": order("p", "d"), "another amount": changed, "another account": elsewhere} {
		for _, token := range []lock.Token{33, 34} {
			for _, proxy := range []*rail.Proxy{p, other} {
				_, err := proxy.Submit(t.Context(), max(token, 34), o)
				refused(t, what, err, refusal.Duplicate)
			}
		}
	}
	equal(t, "rail", w.executed(), "p executed")
	equal(t, "rows", w.rows(p), "p 33 ACKED")
	if n := strings.Count(w.kinds(), "duplicate_rail_submission_attempted"); n != 12 {
		t.Errorf("%d duplicates told", n)
	}
	// The refused ones had a good token, which counts.
	_, err := p.Submit(t.Context(), 33, order("q", "d"))
	fencedOut(t, "an older token", err)
}

func TestTwoSubmissionsAtOnceAreSentOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	proxies := []*rail.Proxy{w.proxy(true), w.proxy(true)}
	release := w.hold()
	const callers = 8
	errs := make(chan error, callers)
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			// Through two accounts, as callers with a bug might: the payout is one.
			o := order("p", "d")
			if i%4 > 1 {
				o.Account = "b"
			}
			_, err := proxies[i%2].Submit(t.Context(), 33, o)
			errs <- err
		})
	}
	for range callers - 1 {
		refused(t, "all but one", <-errs, refusal.Duplicate)
	}
	w.arrived()
	release()
	wg.Wait()
	if err := <-errs; err != nil {
		t.Error(err)
	}
	equal(t, "rail", w.executed(), "p executed")
}

func TestAStaleSubmissionIsFencedOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.proxy(true)
	w.submit(p, 33, order("p", "d"))
	_, err := p.Submit(t.Context(), 32, order("q", "d"))
	fencedOut(t, "below", err)
	w.submit(p, 33, order("q", "d")) // the rule is not below
	elsewhere := order("r", "d")
	elsewhere.Account = "b"
	w.submit(p, 7, elsewhere) // each account has its own mark
	equal(t, "rail", w.executed(), "p executed, q executed, r executed")
	if e := w.events[2]; e.Kind != rail.EventFencedOut || e.Lookup || e.Submission.Payout != "q" || e.Submission.Token != 32 {
		t.Errorf("told %+v", e)
	}
}

func TestALookupKeepsOlderHoldersOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p, other := w.proxy(true), w.proxy(true)
	if s, there := w.lookup(p, 34, "p"); there {
		t.Errorf("there is %+v", s)
	}
	_, err := other.Submit(t.Context(), 33, order("p", "d"))
	fencedOut(t, "a submission by an older holder", err)
	_, _, err = other.Lookup(t.Context(), 33, "p", "a")
	fencedOut(t, "a lookup by an older holder", err)
	if n := w.sent(); n != 0 {
		t.Errorf("%d orders were sent", n)
	}
	w.submit(p, 34, order("p", "d"))
	if s, there := w.lookup(other, 35, "p"); !there || s.Token != 34 || s.Outcome != rail.Acked {
		t.Errorf("looked up %+v", s)
	}
	_, _, err = p.Lookup(t.Context(), 36, "p", "b")
	refused(t, "another account", err, refusal.Different)
}

func TestWhatCannotBeIsNotSent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.proxy(true)
	long := strings.Repeat("x", 1<<20)
	for _, id := range []string{"", "a b", "ä", "a\x00", strings.Repeat("x", 65), long} {
		o := order(id, "d")
		_, err := p.Submit(t.Context(), 1, o)
		invalid(t, "payout", err, "payout")
		_, _, err = p.Lookup(t.Context(), 1, id, "a")
		invalid(t, "payout", err, "payout")
		o = order("p", "d")
		o.Account = id
		_, err = p.Submit(t.Context(), 1, o)
		invalid(t, "account", err, "account")
		_, _, err = p.Lookup(t.Context(), 1, "p", id)
		invalid(t, "account", err, "account")
	}
	for _, to := range []string{"", "a\x00", "a\n", long} {
		_, err := p.Submit(t.Context(), 1, order("p", to))
		invalid(t, "destination", err, "destination")
	}
	for _, amount := range []int64{0, -1, math.MinInt64, math.MaxInt64, 1_000_000_000_001} {
		o := order("p", "d")
		o.Amount = amount
		_, err := p.Submit(t.Context(), 1, o)
		invalid(t, "amount", err, "amount")
	}
	for _, token := range []lock.Token{0, -1, math.MinInt64} {
		_, err := p.Submit(t.Context(), token, order("p", "d"))
		invalid(t, "token", err, "token")
		_, _, err = p.Lookup(t.Context(), token, "p", "a")
		invalid(t, "token", err, "token")
	}
	equal(t, "rows", w.rows(p), "")
	if n := w.sent(); n != 0 {
		t.Errorf("%d orders were sent", n)
	}
}

func TestSubmissionsAreListedInPages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.proxy(true)
	for _, id := range []string{"z", "a", "m"} {
		w.submit(p, 1, order(id, "d"))
	}
	var got []string
	for token := ""; ; {
		page, next, err := p.List(t.Context(), 2, token)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range page {
			got = append(got, s.Payout)
		}
		if token = next; token == "" {
			break
		}
	}
	equal(t, "pages", strings.Join(got, " "), "z a m")
	_, _, err := p.List(t.Context(), 1001, "")
	invalid(t, "size", err, "page_size")
	_, _, err = p.List(t.Context(), 1, "x")
	invalid(t, "token", err, "page_token")
}

// TestWithFencingOffEverythingIsSent is the harm that fencing prevents.
func TestWithFencingOffEverythingIsSent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.proxy(false)
	if _, there := w.lookup(p, 34, "p"); there {
		t.Error("there is a submission")
	}
	w.submit(p, 34, order("p", bank.ToLoseRequest))
	w.submit(p, 33, order("p", "d"))
	w.submit(p, 33, order("p", "d"))
	equal(t, "rail", w.executed(), "p executed, p executed")
	equal(t, "rows", w.rows(p), "p 34, p 33 ACKED, p 33 ACKED")
	if s, there := w.lookup(p, 1, "p"); !there || s.Outcome != rail.Acked {
		t.Errorf("looked up %+v", s)
	}
	// With fencing on again, it was submitted before.
	_, err := w.proxy(true).Submit(t.Context(), 99, order("p", "d"))
	refused(t, "with fencing on", err, refusal.Duplicate)
}
