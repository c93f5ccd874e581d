package guard_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/adapters/etcd/guard"
	"github.com/fencelock/fencelock/core/fence"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/tools/testenv"
)

func rules() []step {
	return []step{
		{fence.Equal, 1, false},
		{fence.Above, 9, true},
		{fence.Above, 9, false},
		{fence.Above, 10, true}, // as text it is below 9
		{fence.Equal, 9, false},
		{fence.NotBelow, 9, false},
		{fence.Above, 9, false},
		{fence.NotBelow, 10, true},
		{fence.Equal, 10, true},
		{fence.Equal, 11, false},
		{fence.NotBelow, 100, true},
		{fence.Above, 99, false},
		{fence.Equal, 100, true},
		// Numbers that a float cannot tell apart.
		{fence.Above, 1<<53 + 1, true},
		{fence.Equal, 1 << 53, false},
		{fence.NotBelow, 1 << 53, false},
		{fence.Above, math.MaxInt64 - 1, true},
		{fence.Above, math.MaxInt64 - 1, false},
		{fence.NotBelow, math.MaxInt64, true},
		{fence.Equal, math.MaxInt64 - 1, false},
		{fence.Above, math.MaxInt64, false},
		{fence.Equal, math.MaxInt64, true},
		{fence.NotBelow, math.MaxInt64, true},
	}
}

func TestRulesOnBothSidesOfTheMark(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	if wrong := follow(t, p.Advance, rules()); wrong != nil {
		t.Errorf("%d by %s", wrong.token, wrong.rule)
	}
	if got := p.get(t, "mark/a"); got != strconv.Itoa(math.MaxInt64) {
		t.Errorf("the mark is written as %q", got)
	}
}

// TestPlainNumbersAreComparedAsText is the mistake that the form of the marks avoids.
func TestPlainNumbersAreComparedAsText(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	plain := func(ctx context.Context, resource string, token lock.Token, _ fence.Rule) (fence.Verdict, error) {
		key, value := p.prefix+resource, strconv.Itoa(int(token))
		answer, err := p.client.Txn(ctx).If(clientv3.Compare(clientv3.Value(key), ">", strconv.Itoa(int(token)-1))).
			Then(clientv3.OpGet(key)).Else(clientv3.OpPut(key, value)).Commit()
		if err != nil || !answer.Succeeded {
			return fence.Verdict{Admitted: true, Highest: token}, err
		}
		highest, err := strconv.Atoi(string(answer.Responses[0].GetResponseRange().GetKvs()[0].GetValue()))
		return fence.Verdict{Highest: lock.Token(highest)}, err
	}
	steps := []step{{fence.Above, 10, true}, {fence.Above, 9, false}}
	if wrong := follow(t, plain, steps); wrong == nil || wrong.token != 9 {
		t.Errorf("the mistake is not found: %+v", wrong)
	}
	if wrong := follow(t, p.Advance, steps); wrong != nil {
		t.Errorf("the guard: %+v", wrong)
	}
}

// overtake lets a newer holder in between the check and the write of an older one, where there is room, and returns
// what stands there at the end.
func overtake(t *testing.T, p *place, write func(between func()) error) string {
	t.Helper()
	if _, err := p.Do(t.Context(), "a", 33, fence.Above, p.put("balance", "claimed by 33")); err != nil {
		t.Fatal(err)
	}
	newer := func() {
		if _, err := p.Do(t.Context(), "a", 34, fence.Above, p.put("balance", "written by 34")); err != nil {
			t.Fatal(err)
		}
	}
	if err := write(newer); err != nil && !errors.Is(err, lock.ErrFencedOut) {
		t.Fatal(err)
	}
	return p.get(t, "balance")
}

// TestNothingComesBetweenTheCheckAndTheWrite shows the window of a check that is not in the write's transaction.
func TestNothingComesBetweenTheCheckAndTheWrite(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	got := overtake(t, p, func(between func()) error {
		between()
		_, err := p.Do(t.Context(), "a", 33, fence.Equal, p.put("balance", "written by 33"))
		return err
	})
	if got != "written by 34" {
		t.Errorf("the guard let it through: %s", got)
	}
	mistaken := newPlace(t)
	got = overtake(t, mistaken, func(between func()) error {
		if err := fence.New(mistaken).AdmitBy(t.Context(), fence.Equal, "a", 33); err != nil {
			return err
		}
		between()
		mistaken.set(t, "balance", "written by 33")
		return nil
	})
	if got != "written by 33" {
		t.Errorf("the mistake is not found: %s", got)
	}
}

func TestWritesAreCarriedOutTogetherOrNotAtAll(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	operations := make([]clientv3.Op, 0, 8) // room for others: the guard must not use it
	operations = append(operations, p.put("x", "1"), clientv3.OpGet(p.prefix+"x"), p.put("y", "1"))
	for _, rule := range []fence.Rule{fence.Above, fence.NotBelow, fence.Equal} {
		answer, err := p.Do(t.Context(), "a", 33, rule, operations...)
		if err != nil || len(answer.Responses) != 3 || len(answer.Responses[1].GetResponseRange().GetKvs()) != 1 {
			t.Fatalf("%s: %v, %v", rule, answer, err)
		}
	}
	if more := operations[:4][3]; more.KeyBytes() != nil {
		t.Errorf("the caller's slice was written to: %s", more.KeyBytes())
	}
	for _, rule := range []fence.Rule{fence.Above, fence.NotBelow, fence.Equal} {
		answer, err := p.Do(t.Context(), "a", 32, rule, p.put("x", "2"), p.put("z", "2"))
		if answer != nil {
			t.Errorf("%s: an answer beside the refusal", rule)
		}
		refused(t, rule.String(), err, fence.FencedOutError{Resource: "a", Rule: rule, Presented: 32, Highest: 33})
	}
	if x, z := p.get(t, "x"), p.get(t, "z"); x != "1" || z != "" {
		t.Errorf("refused writes were carried out: %q, %q", x, z)
	}
	if _, err := p.Do(t.Context(), "b", 1, fence.Above); err != nil {
		t.Errorf("another resource: %v", err)
	}
}

func TestAMarkThatIsNoNumberLetsNobodyIn(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	for _, value := range []string{"34", "9999999999999999999", "x", "0000000000000000034\n", "9223372036854775808"} {
		p.set(t, "mark/a", value)
		for _, rule := range []fence.Rule{fence.Above, fence.NotBelow, fence.Equal} {
			_, err := p.Advance(t.Context(), "a", 33, rule)
			expect(t, strconv.Quote(value)+" "+rule.String(), err, lock.ErrContention, false)
		}
	}
}

// TestAMarkCanBeReset as docs/fencing.md says, after a made-up number has locked everyone out.
func TestAMarkCanBeReset(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	if _, err := p.Do(t.Context(), "a", math.MaxInt64, fence.Above); err != nil {
		t.Fatal(err)
	}
	p.set(t, "mark/a", fmt.Sprintf("%019d", 50))
	_, err := p.Do(t.Context(), "a", 49, fence.NotBelow)
	refused(t, "an older one", err, fence.FencedOutError{Resource: "a", Rule: fence.NotBelow, Presented: 49, Highest: 50})
	if _, err := p.Do(t.Context(), "a", 51, fence.Above); err != nil {
		t.Errorf("a newer one: %v", err)
	}
}

func TestWhatNoResourceHasIsInvalid(t *testing.T) {
	t.Parallel()
	p := guard.New(clientv3.NewKVFromKVClient(nil, nil), "") // asked for anything, it panics
	for what, try := range map[string]func() error{
		"token 0":         func() error { _, err := p.Do(t.Context(), "a", 0, fence.Above); return err },
		"no resource":     func() error { _, err := p.Do(t.Context(), "", 1, fence.Above); return err },
		"a long resource": func() error { _, err := p.Advance(t.Context(), strings.Repeat("a", 600), 1, fence.Equal); return err },
		"no rule":         func() error { _, err := p.Advance(t.Context(), "a", 1, fence.Rule(5)); return err },
	} {
		expect(t, what, try(), lock.ErrInvalid, false)
	}
}

func TestOperationsThatEtcdDoesNotTakeAreInvalid(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	for what, operations := range map[string][]clientv3.Op{
		"a key twice":         {p.put("x", "1"), p.put("x", "2")},
		"the mark":            {clientv3.OpDelete(p.prefix, clientv3.WithPrefix())},
		"too many":            make([]clientv3.Op, 0, 200),
		"no key":              {clientv3.OpPut("", "1")},
		"too much":            {p.put("x", strings.Repeat("x", 1600<<10))},
		"a lease that is not": {clientv3.OpPut(p.prefix+"x", "1", clientv3.WithLease(77))},
	} {
		for i := range cap(operations) - len(operations) {
			operations = append(operations, p.put(strconv.Itoa(i), "1"))
		}
		_, err := p.Do(t.Context(), "a", 33, fence.Above, operations...)
		expect(t, what, err, lock.ErrInvalid, false)
	}
	// What is refused on this side looks like an answer that was too large to be read.
	_, err := p.Do(t.Context(), "a", 33, fence.Above, p.put("x", strings.Repeat("x", 3<<20)))
	expect(t, "far too much", err, lock.ErrInvalid, true)
	if got := p.get(t, "mark/a"); got != "" {
		t.Errorf("the mark was raised to %s", got)
	}
}

// TestALostAnswer shows what the document of the package says about repetitions.
func TestALostAnswer(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	proxy := testenv.NewProxy(t, testenv.Etcd(t).Endpoints[0])
	through := at(client(t, proxy.Addr), p.prefix)
	if _, err := through.Do(t.Context(), "a", 30, fence.Above); err != nil {
		t.Fatal(err)
	}
	// lose sends a write whose answer does not come, though it is carried out.
	lose := func(token lock.Token, rule fence.Rule, value string) {
		t.Helper()
		proxy.HoldAnswers()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		ended := make(chan error, 1)
		go func() {
			_, err := through.Do(ctx, "a", token, rule, p.put("x", value))
			ended <- err
		}()
		for p.get(t, "x") != value {
			if ctx.Err() != nil {
				t.Fatal("the write was not carried out")
			}
		}
		cancel()
		expect(t, "the lost answer", <-ended, lock.ErrContention, true)
		proxy.ReleaseAnswers()
	}

	lose(33, fence.Above, "claimed")
	_, err := through.Do(t.Context(), "a", 33, fence.Above, p.put("x", "claimed again"))
	refused(t, "the claim again", err, fence.FencedOutError{Resource: "a", Rule: fence.Above, Presented: 33, Highest: 33})
	if got := p.get(t, "x"); got != "claimed" {
		t.Errorf("the repetition was carried out: %s", got)
	}
	for _, rule := range []fence.Rule{fence.Equal, fence.NotBelow} {
		lose(33, rule, rule.String())
		if _, err := through.Do(t.Context(), "a", 33, rule, p.put("x", rule.String()+" again")); err != nil {
			t.Errorf("%s again: %v", rule, err)
		}
	}
	lose(34, fence.NotBelow, "34")
	if _, err := p.Do(t.Context(), "a", 35, fence.Above, p.put("x", "35")); err != nil {
		t.Fatal(err)
	}
	_, err = through.Do(t.Context(), "a", 34, fence.NotBelow, p.put("x", "34 again"))
	refused(t, "the repetition after a newer one", err,
		fence.FencedOutError{Resource: "a", Rule: fence.NotBelow, Presented: 34, Highest: 35})
}

func TestAnEtcdThatCannotBeAskedIsContention(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	proxy := testenv.NewProxy(t, testenv.Etcd(t).Endpoints[0])
	through := at(client(t, proxy.Addr), p.prefix)
	proxy.Cut()
	for _, rule := range []fence.Rule{fence.Above, fence.NotBelow, fence.Equal} {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		v, err := through.Advance(ctx, "a", 33, rule)
		cancel()
		if v.Admitted || !lock.IsRetryable(err) || !errors.Is(err, lock.ErrContention) {
			t.Errorf("%s: %+v, %v", rule, v, err)
		}
	}
}
