package fence_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/core/fence"
	"github.com/fencelock/fencelock/core/lock"
)

func TestRulesOnBothSidesOfTheMark(t *testing.T) {
	t.Parallel()
	cases := []struct {
		rule                 fence.Rule
		below, equal, higher bool
	}{
		{fence.Above, false, false, true},
		{fence.Equal, false, true, false},
		{fence.NotBelow, false, true, true},
		{fence.Rule(3), false, false, false},
		{fence.Rule(-1), false, false, false},
	}
	for _, c := range cases {
		for highest, marks := range map[lock.Token][3]lock.Token{
			10:                {9, 10, 11},
			math.MaxInt64 - 1: {1, math.MaxInt64 - 1, math.MaxInt64},
		} {
			got := [3]bool{}
			for i, token := range marks {
				got[i] = c.rule.Admits(token, highest)
			}
			if want := [3]bool{c.below, c.equal, c.higher}; got != want {
				t.Errorf("%s at %d admits below, equal, higher: %v, want %v", c.rule, highest, got, want)
			}
		}
	}
	for rule, want := range map[fence.Rule]string{fence.Above: "above", fence.Equal: "equal", fence.NotBelow: "not below", 7: "no rule"} {
		if got := rule.String(); got != want {
			t.Errorf("rule %d is called %q, want %q", rule, got, want)
		}
	}
}

func TestGuardAdmitsAGrantsWritesAndRefusesOlderOnes(t *testing.T) {
	t.Parallel()
	ctx, g := t.Context(), fence.New(newMemory())
	steps := []struct {
		rule     fence.Rule
		token    lock.Token
		admitted bool
		text     string
	}{
		{fence.Equal, 33, false, "a: fenced out: token 33 is not 0"},
		{fence.Above, 33, true, ""},
		{fence.Above, 33, false, "a: fenced out: token 33 is not above 33"},
		{fence.Equal, 33, true, ""},
		{fence.Equal, 34, false, "a: fenced out: token 34 is not 33"},
		{fence.NotBelow, 33, true, ""},
		{fence.NotBelow, 34, true, ""},
		{fence.Equal, 33, false, "a: fenced out: token 33 is not 34"},
		{fence.NotBelow, 33, false, "a: fenced out: token 33 is below 34"},
		{fence.Above, 33, false, "a: fenced out: token 33 is not above 34"},
		{fence.Equal, 34, true, ""},
	}
	highest := lock.Token(0)
	for i, s := range steps {
		err := g.AdmitBy(ctx, s.rule, "a", s.token)
		if (err == nil) != s.admitted {
			t.Fatalf("step %d: %v", i, err)
		}
		if err == nil {
			highest = s.token
			continue
		}
		want := fence.FencedOutError{Resource: "a", Rule: s.rule, Presented: s.token, Highest: highest}
		if refused, ok := errors.AsType[*fence.FencedOutError](err); !ok || *refused != want || err.Error() != s.text {
			t.Errorf("step %d: got %#v (%v), want %#v (%s)", i, refused, err, want, s.text)
		}
	}
	if err := g.Admit(ctx, "b", 1); err != nil {
		t.Errorf("another resource has a mark of its own: %v", err)
	}
}

func TestARefusalIsOfTheClosedSet(t *testing.T) {
	t.Parallel()
	g := fence.New(newMemory())
	if err := g.Admit(t.Context(), "account:4711", 2); err != nil {
		t.Fatal(err)
	}
	err := fmt.Errorf("write: %w", g.Admit(t.Context(), "account:4711", 1))
	if !errors.Is(err, lock.ErrFencedOut) || errors.Is(err, lock.ErrLost) {
		t.Errorf("%v does not match ErrFencedOut alone", err)
	}
	if code := lock.CodeOf(err); code != lock.CodeFencedOut {
		t.Errorf("code is %s", code)
	}
	if lock.IsRetryable(err) || lock.IsAmbiguous(err) {
		t.Errorf("%v claims that trying again could help", err)
	}
	if e, _ := errors.AsType[*lock.Error](err); strings.Contains(e.Message, "4711") {
		t.Errorf("what any caller may see names the resource: %q", e.Message)
	}
}

func TestNothingIsAdmittedWhereTheMarksCannotBeAsked(t *testing.T) {
	t.Parallel()
	for _, rule := range []fence.Rule{fence.Above, fence.Equal, fence.NotBelow} {
		err := fence.New(broken{}).AdmitBy(t.Context(), rule, "a", 1)
		if !errors.Is(err, lock.ErrContention) || !lock.IsAmbiguous(err) || errors.Is(err, lock.ErrFencedOut) {
			t.Errorf("%s: %v", rule, err)
		}
	}
}

func TestWhatNoResourceHasIsInvalidBeforeTheMarksAreAsked(t *testing.T) {
	t.Parallel()
	marks := newMemory()
	g := fence.New(marks)
	cases := []struct {
		name, resource string
		token          lock.Token
		rule           fence.Rule
		field          string
	}{
		{"token 0", "a", 0, fence.Above, "token"},
		{"token 0 where there is no mark", "a", 0, fence.Equal, "token"},
		{"a negative token", "a", -1, fence.NotBelow, "token"},
		{"the least token", "a", math.MinInt64, fence.Above, "token"},
		{"no resource", "", 1, fence.Above, "resource"},
		{"a long resource", strings.Repeat("a", fence.MaxResourceBytes+1), 1, fence.Above, "resource"},
		{"a resource with NUL", "a\x00b", 1, fence.Above, "resource"},
		{"a resource that is no text", "a\xff", 1, fence.Above, "resource"},
		{"no rule", "a", 1, fence.Rule(9), "rule"},
	}
	for _, c := range cases {
		err := g.AdmitBy(t.Context(), c.rule, c.resource, c.token)
		if e, ok := errors.AsType[*lock.Error](err); !ok || e.Code != lock.CodeInvalid || e.Field != c.field {
			t.Errorf("%s: got %v, want an invalid %s", c.name, err, c.field)
		}
	}
	if marks.asked != 0 {
		t.Errorf("the marks were asked %d times", marks.asked)
	}
	if err := g.Admit(t.Context(), strings.Repeat("a", fence.MaxResourceBytes), math.MaxInt64); err != nil {
		t.Errorf("the longest resource and the highest token: %v", err)
	}
}
