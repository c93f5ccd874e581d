package fence_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/core/fence"
	"github.com/fencelock/fencelock/core/lock"
)

// record is the lock service's, as a follower sees it.
type record struct {
	mu   sync.Mutex
	acts []lock.Revocation // the newest last
	// fail is the error that ends a look after failAfter acts; nil for none.
	fail      error
	failAfter int
	// looks counts the looks, seen the acts that they saw.
	looks, seen int
}

// revoke puts an act on record. A name without a colon is a raised floor's.
func (r *record) revoke(name string, floor lock.Token) { r.late(0, name, floor) }

// late puts an act on record behind some that are newer.
func (r *record) late(behind int, name string, floor lock.Token) {
	var key lock.Key
	if strings.Contains(name, ":") {
		key, _ = lock.NewKey("", name)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.acts = slices.Insert(r.acts, len(r.acts)-behind, lock.Revocation{Key: key, PreviousToken: floor - 1, Floor: floor})
}

func (r *record) breaks(err error, after int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fail, r.failAfter = err, after
}

func (r *record) counts() (looks, seen int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.looks, r.seen
}

func (r *record) list(context.Context) iter.Seq2[lock.Revocation, error] {
	return func(yield func(lock.Revocation, error) bool) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.looks++
		for i, act := range slices.Backward(r.acts) {
			if r.fail != nil && len(r.acts)-1-i == r.failAfter {
				break
			}
			r.seen++
			if !yield(act, nil) {
				return
			}
		}
		if r.fail != nil {
			yield(lock.Revocation{}, r.fail)
		}
	}
}

// resource is what the lock "payout:a" protects: "a".
func resource(key lock.Key) []string {
	if name, ours := strings.CutPrefix(key.Name(), "payout:"); ours {
		return []string{name}
	}
	return nil
}

// reports collects what a follower reports.
type reports struct {
	mu    sync.Mutex
	texts []string
}

func (r *reports) take(resource string, floor lock.Token, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.texts = append(r.texts, fmt.Sprintf("%s %d %s", resource, floor, lock.CodeOf(err)))
}

// drain returns how often each report came since the last time.
func (r *reports) drain() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	counts := map[string]int{}
	for _, text := range r.texts {
		counts[text]++
	}
	r.texts = nil
	return counts
}

func (r *reports) expect(t *testing.T, what string, want map[string]int) {
	t.Helper()
	if got := r.drain(); !maps.Equal(got, want) {
		t.Errorf("%s: reported %v, want %v", what, got, want)
	}
}

// follow runs a follower until the end of the test.
func follow(t *testing.T, f fence.Follower) *reports {
	t.Helper()
	told := &reports{}
	f.Report = told.take
	if f.Resources == nil {
		f.Resources = resource
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.Run(ctx)
	}()
	t.Cleanup(func() { stop(); <-ended })
	return told
}

// looks passes in virtual time for some looks at least.
func looks(n int) { time.Sleep(time.Duration(n) * fence.DefaultFollowEvery); synctest.Wait() }

func refusedBy(err error) bool { return errors.Is(err, lock.ErrFencedOut) }

// TestARevokedHolderIsRefusedBeforeTheNextOneWrites by each rule, and who comes next is admitted.
func TestARevokedHolderIsRefusedBeforeTheNextOneWrites(t *testing.T) {
	t.Parallel()
	for _, later := range []fence.Rule{fence.Equal, fence.NotBelow} {
		synctest.Test(t, func(t *testing.T) {
			marks, acts := newMemory(), &record{}
			guard := fence.New(marks)
			follow(t, fence.Follower{Revocations: acts.list, Marks: marks})
			if err := guard.Admit(t.Context(), "a", 33); err != nil {
				t.Fatal(err)
			}
			looks(2)
			if err := guard.AdmitBy(t.Context(), later, "a", 33); err != nil {
				t.Errorf("before the revocation, by %s: %v", later, err)
			}
			acts.revoke("payout:a", 40)
			looks(2)
			for _, rule := range []fence.Rule{fence.Above, fence.Equal, fence.NotBelow} {
				if err := guard.AdmitBy(t.Context(), rule, "a", 33); !refusedBy(err) {
					t.Errorf("the revoked holder, by %s: %v", rule, err)
				}
			}
			if err := guard.AdmitBy(t.Context(), fence.NotBelow, "b", 33); err != nil {
				t.Errorf("another resource: %v", err)
			}
			for _, rule := range []fence.Rule{fence.Above, fence.Equal, fence.NotBelow} {
				looks(2)
				if err := guard.AdmitBy(t.Context(), rule, "a", 41); err != nil {
					t.Errorf("the next holder, by %s: %v", rule, err)
				}
			}
		})
	}
}

// TestAFollowerBeginsWithAllThatIsOnRecord however long that is, and asks for the highest floor of each only.
func TestAFollowerBeginsWithAllThatIsOnRecord(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		marks, acts := newMemory(), &record{}
		acts.revoke("payout:old", 7)
		for i := range 500 {
			acts.revoke("other:key", lock.Token(10+i))
			acts.revoke("payout:a", lock.Token(1000+i))
		}
		for range 200 {
			acts.revoke("other:key", 5000)
		}
		told := follow(t, fence.Follower{Revocations: acts.list, Marks: marks})
		synctest.Wait()
		told.expect(t, "at the start", map[string]int{"old 7 ": 1, "a 1499 ": 1})
		if marks.asked != 2 {
			t.Errorf("the marks were asked %d times", marks.asked)
		}
	})
}

// TestALookWithoutNewsIsShort and asks the marks for nothing.
func TestALookWithoutNewsIsShort(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		marks, acts := newMemory(), &record{}
		for i := range 1000 {
			acts.revoke("payout:a", lock.Token(1+i))
		}
		told := follow(t, fence.Follower{Revocations: acts.list, Marks: marks})
		synctest.Wait()
		first, _ := acts.counts()
		looks(20)
		n, seen := acts.counts()
		if first != 1 || n < 20 || n > 41 || seen != 1000+(n-1)*100 {
			t.Errorf("%d looks, then %d, saw %d records", first, n, seen)
		}
		told.expect(t, "without news", map[string]int{"a 1000 ": 1})
		acts.revoke("payout:b", 2000)
		looks(2)
		told.expect(t, "with news", map[string]int{"b 2000 ": 1})
	})
}

// TestAnActThatIsRecordedLateIsFound: where two operators act at once, the older act may be seen after the newer one.
func TestAnActThatIsRecordedLateIsFound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		acts := &record{}
		for i := range 400 {
			acts.revoke("payout:a", lock.Token(1+i))
		}
		told := follow(t, fence.Follower{Revocations: acts.list, Marks: newMemory()})
		looks(2)
		told.drain()
		acts.late(99, "payout:b", 300)
		looks(2)
		told.expect(t, "a little late", map[string]int{"b 300 ": 1})
		acts.late(300, "payout:c", 100)
		looks(2)
		told.expect(t, "very late, at first", map[string]int{})
		looks(300)
		told.expect(t, "very late, in the end", map[string]int{"c 100 ": 1})
	})
}

// TestManyActsOnOneKeyHideNoOther that was put on record between the same two looks.
func TestManyActsOnOneKeyHideNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		acts := &record{}
		told := follow(t, fence.Follower{Revocations: acts.list, Marks: newMemory()})
		looks(2)
		acts.revoke("payout:hidden", 5)
		for i := range 150 {
			acts.revoke("payout:a", lock.Token(10+i))
		}
		looks(2)
		told.expect(t, "after the burst", map[string]int{"hidden 5 ": 1, "a 159 ": 1})
	})
}

// TestAfterAFailedLookNothingIsMissed: what lies behind the records that it saw is as new as before.
func TestAfterAFailedLookNothingIsMissed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		acts := &record{}
		acts.breaks(lock.ErrContention, 0)
		acts.revoke("payout:before", 1)
		told := follow(t, fence.Follower{Revocations: acts.list, Marks: newMemory()})
		looks(2)
		if got := told.drain(); len(got) != 1 || got[" 0 CONTENTION"] == 0 {
			t.Errorf("while it fails from the start: %v", got)
		}
		acts.breaks(nil, 0)
		looks(2)
		told.expect(t, "the first that succeeds", map[string]int{"before 1 ": 1})

		acts.revoke("payout:gap", 5)
		for i := range 150 {
			acts.revoke("payout:a", lock.Token(10+i))
		}
		acts.breaks(lock.ErrContention, 120)
		looks(2)
		if got := told.drain(); got["a 159 "] != 1 || got["gap 5 "] != 0 || got[" 0 CONTENTION"] == 0 {
			t.Errorf("while it fails in the middle: %v", got)
		}
		acts.breaks(nil, 0)
		looks(2)
		told.expect(t, "after it", map[string]int{"gap 5 ": 1})
	})
}

// troubled marks fail for some resources, and keep those waiting who ask for others.
type troubled struct {
	*memory

	mu    sync.Mutex
	fails map[string]error
	holds map[string]bool
}

func (m *troubled) set(resource string, fails error, holds bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fails[resource], m.holds[resource] = fails, holds
}

func (m *troubled) Advance(ctx context.Context, resource string, token lock.Token, rule fence.Rule) (fence.Verdict, error) {
	m.mu.Lock()
	err, holds := m.fails[resource], m.holds[resource]
	m.mu.Unlock()
	if holds {
		<-ctx.Done()
		return fence.Verdict{}, lock.Contention("the mark is held", true, ctx.Err())
	}
	if err != nil {
		return fence.Verdict{}, err
	}
	return m.memory.Advance(ctx, resource, token, rule)
}

// TestAMarkThatCannotBeRaisedIsTriedAgainAndHoldsUpNoOther, unless there is no such resource.
func TestAMarkThatCannotBeRaisedIsTriedAgainAndHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		acts := &record{}
		marks := &troubled{memory: newMemory(), fails: map[string]error{}, holds: map[string]bool{}}
		marks.set("held", nil, true)
		marks.set("broken", lock.ErrContention, false)
		marks.set("gone", lock.Invalid("resource", "has no row"), false)
		for _, name := range []string{"held", "broken", "gone", "fine"} {
			acts.revoke("payout:"+name, 9)
		}
		told := follow(t, fence.Follower{Revocations: acts.list, Marks: marks})
		looks(10)
		got := told.drain()
		if got["fine 9 "] != 1 || got["gone 9 INVALID"] != 1 || got["held 9 CONTENTION"] < 2 || got["broken 9 CONTENTION"] < 2 || len(got) != 4 {
			t.Errorf("in trouble: %v", got)
		}
		acts.revoke("payout:fine", 11) // while others are held up
		looks(5)
		if got := told.drain(); got["fine 11 "] != 1 {
			t.Errorf("news in trouble: %v", got)
		}
		for _, name := range []string{"held", "broken", "gone"} {
			marks.set(name, nil, false)
		}
		looks(4)
		told.drain()
		for name, floor := range map[string]lock.Token{"fine": 11, "held": 9, "broken": 9, "gone": 0} {
			if got := marks.marks[name]; got != floor {
				t.Errorf("the mark of %s is %d, want %d", name, got, floor)
			}
		}
		looks(5)
		told.expect(t, "once all are raised", map[string]int{})
	})
}

// TestMarksThatAreHeldDelayNoNews: each costs the patience for one mark, and there may be many.
func TestMarksThatAreHeldDelayNoNews(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		acts := &record{}
		marks := &troubled{memory: newMemory(), fails: map[string]error{}, holds: map[string]bool{}}
		const held = 100
		for n := range held {
			marks.set(fmt.Sprint("held-", n), nil, true)
			acts.revoke(fmt.Sprint("payout:held-", n), 9)
		}
		told := follow(t, fence.Follower{Revocations: acts.list, Marks: marks})
		for n := range 10 {
			looks(5)
			told.drain()
			acts.revoke("payout:fine", lock.Token(20+n))
			looks(5)
			if got := told.drain(); got[fmt.Sprintf("fine %d ", 20+n)] != 1 {
				t.Fatalf("after 5 s: %v", got)
			}
		}
		marks.set("held-7", nil, false)
		looks(4 * held)
		if got := told.drain(); got["held-7 9 "] != 1 {
			t.Errorf("the one that is free again: %v", got)
		}
	})
}

// TestARaisedFloorIsForTheResourcesThatTheCallerNames: it has no key.
func TestARaisedFloorIsForTheResourcesThatTheCallerNames(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		acts := &record{}
		told := follow(t, fence.Follower{Revocations: acts.list, Marks: newMemory(), Resources: func(key lock.Key) []string {
			if key.IsZero() {
				return []string{"a", "b", ""}
			}
			return []string{key.String()}
		}})
		acts.revoke("floor", 1000)
		acts.revoke("payout:a", 1001)
		looks(2)
		told.expect(t, "all", map[string]int{"a 1000 ": 1, "b 1000 ": 1, " 1000 INVALID": 1, "default/payout:a 1001 ": 1})
	})
}

// TestAMarkAboveTheFloorStays: a follower that comes late takes nothing from the next holder.
func TestAMarkAboveTheFloorStays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		marks, acts := newMemory(), &record{}
		guard := fence.New(marks)
		acts.revoke("payout:a", 40)
		if err := guard.Admit(t.Context(), "a", 41); err != nil {
			t.Fatal(err)
		}
		told := follow(t, fence.Follower{Revocations: acts.list, Marks: marks})
		looks(2)
		told.expect(t, "late", map[string]int{"a 40 ": 1})
		if err := guard.AdmitBy(t.Context(), fence.Equal, "a", 41); err != nil {
			t.Error(err)
		}
	})
}

// TestAFollowerEndsWithItsContext at once, and reports no failure because of it.
func TestAFollowerEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		acts, told := &record{}, &reports{}
		marks := &troubled{memory: newMemory(), fails: map[string]error{}, holds: map[string]bool{"a": true}}
		acts.revoke("payout:a", 9)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		began := time.Now()
		go func() {
			defer close(ended)
			fence.Follower{Revocations: acts.list, Resources: resource, Marks: marks, Report: told.take, Every: time.Hour}.Run(ctx)
		}()
		synctest.Wait()
		stop()
		<-ended
		if d := time.Since(began); d != 0 {
			t.Errorf("it ended after %v", d)
		}
		told.expect(t, "at the end", map[string]int{})
	})
}
