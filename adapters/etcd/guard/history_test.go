package guard_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"pgregory.net/rapid"

	"github.com/fencelock/fencelock/core/fence"
	"github.com/fencelock/fencelock/core/lock"
)

// TestTheHistoryOfAResourceIsMonotone lets many grants write to one resource at once, each with a claim and later writes, and
// those that were overtaken go on as if they were not. etcd's own history of what was written must be in the order of tokens.
func TestTheHistoryOfAResourceIsMonotone(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	var next, done atomic.Int64
	var work sync.WaitGroup
	for range 8 {
		work.Go(func() {
			for range 40 {
				token := lock.Token(next.Add(1))
				for _, rule := range []fence.Rule{fence.Above, fence.Equal, fence.NotBelow} {
					_, err := p.Do(t.Context(), "a", token, rule, p.put("note", fmt.Sprintf("%d %s", token, rule)))
					if err == nil {
						done.Add(1)
					} else if !errors.Is(err, lock.ErrFencedOut) {
						t.Errorf("write: %v", err)
					}
				}
			}
		})
	}
	work.Wait()
	notes := p.history(t, "note")
	if len(notes) != int(done.Load()) || len(notes) < 8 {
		t.Errorf("%d writes were admitted, %d are there", done.Load(), len(notes))
	}
	if wrong := judge(notes); wrong != "" {
		t.Error(wrong)
	}
}

// note is a write that was carried out.
type note struct {
	token lock.Token
	rule  string
}

// history reads all values that a key has had.
func (p *place) history(t *testing.T, name string) []note {
	t.Helper()
	resp, err := p.client.Get(t.Context(), p.prefix+name)
	if err != nil || len(resp.Kvs) != 1 {
		t.Fatalf("read %s: %v", name, err)
	}
	want := int(resp.Kvs[0].GetVersion())
	notes := make([]note, 0, want)
	for r := range p.client.Watch(t.Context(), p.prefix+name, clientv3.WithRev(resp.Kvs[0].GetCreateRevision())) {
		for _, ev := range r.Events {
			var n note
			if _, err := fmt.Sscanf(string(ev.GetKv().GetValue()), "%d %s", &n.token, &n.rule); err != nil {
				t.Fatal(err)
			}
			notes = append(notes, n)
		}
		if len(notes) >= want || r.Err() != nil {
			return notes
		}
	}
	return notes
}

// judge finds what is wrong with a history; "" if nothing is.
func judge(notes []note) string {
	highest := lock.Token(0)
	for _, n := range notes {
		switch {
		case n.rule == "above" && n.token <= highest:
			return fmt.Sprintf("%d claims after %d", n.token, highest)
		case n.rule == "equal" && n.token != highest:
			return fmt.Sprintf("%d writes after %d", n.token, highest)
		case n.token < highest:
			return fmt.Sprintf("%d comes after %d", n.token, highest)
		}
		highest = n.token
	}
	return ""
}

func TestTheJudgeOfHistoriesCanTell(t *testing.T) {
	t.Parallel()
	for want, notes := range map[string][]note{
		"":                 {{5, "above"}, {5, "equal"}, {5, "not"}, {7, "not"}, {8, "above"}},
		"7 claims after 7": {{7, "above"}, {7, "above"}},
		"5 claims after 7": {{7, "above"}, {5, "above"}},
		"8 writes after 7": {{7, "above"}, {8, "equal"}},
		"5 comes after 7":  {{7, "above"}, {5, "not"}},
	} {
		if got := judge(notes); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestTheGuardDoesWhatTheRuleSays plays drawn steps beside a model of one number.
func TestTheGuardDoesWhatTheRuleSays(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	mark := lock.Token(0)
	rapid.Check(t, func(rt *rapid.T) {
		base := mark
		for range rapid.IntRange(1, 8).Draw(rt, "steps") {
			token := max(1, base-2+lock.Token(rapid.IntRange(0, 12).Draw(rt, "token")))
			rule := rapid.SampledFrom([]fence.Rule{fence.Above, fence.Equal, fence.NotBelow}).Draw(rt, "rule")
			want := fence.Verdict{Admitted: rule.Admits(token, mark), Highest: mark}
			if want.Admitted {
				mark, want.Highest = token, token
			}
			if got, err := p.Advance(t.Context(), "a", token, rule); err != nil || got != want {
				rt.Fatalf("%d by %s: got %+v, %v, want %+v", token, rule, got, err, want)
			}
		}
	})
}
