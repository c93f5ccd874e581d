package stack_test

import (
	"crypto/ed25519"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/adapters/client"
	"github.com/fencelock/fencelock/core/fence"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/tools/drills/gate"
	"github.com/fencelock/fencelock/tools/drills/judge"
	"github.com/fencelock/fencelock/tools/drills/stack"
)

// writes are all calls that carry a token.
func writes() []string {
	return []string{gate.Claim, gate.Advance, gate.Post, gate.Submit, gate.Lookup}
}

// TestWhatWasNotSignedForTheAccountDoesNothing has somebody who holds no lock of an account write to it under made-up tokens, between the
// grant of the holder and its writes. A mark that one of them raised would stop the holder, since its own token is lower. Then the holder
// leaves in the middle, and the executors, who know of no signatures, do the rest.
func TestWhatWasNotSignedForTheAccountDoesNothing(t *testing.T) {
	t.Parallel()
	for _, backend := range backends() {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			s := stack.Start(t, programs, stack.Options{Backend: backend, Signed: true})
			must(t, "seed", s.Seed(ctx, "", 3, 12))
			wanted := stack.Order{ID: "wanted", Account: "account-0", Amount: 7, Destination: "somewhere"}
			must(t, "create payout", s.Create(ctx, wanted))
			honest, other := hold(t, s, wanted.Account), hold(t, s, "another")
			for what, token := range madeUp(t, s, honest, other) {
				refused(t, s, wanted, what, token, lock.CodeDenied)
			}
			for _, method := range []string{gate.Claim, gate.Advance, gate.Submit} {
				must(t, "write of the holder", s.Write(ctx, method, wanted, honest.TokenHeader()))
			}
			_, err := honest.Release(ctx)
			must(t, "release", err)
			s.StartExecutor("one", 4)
			s.StartExecutor("two", 4)
			for _, p := range s.AwaitOver(quietly) {
				if p.State != judge.Posted {
					t.Errorf("payout %s is %s", p.ID, p.State)
				}
			}
			if got := total(t, s, "lock_fenced_out_total"); got != 0 {
				t.Errorf("lock_fenced_out_total is %v before anybody was late", got)
			}
			refused(t, s, wanted, "the token of the holder that has left", honest.TokenHeader(), lock.CodeFencedOut)
			if got := total(t, s, "lock_fenced_out_total"); got != float64(len(writes())) {
				t.Errorf("lock_fenced_out_total is %v; want one for each late write", got)
			}
			evidence := verdict(t, s)
			if got := len(evidence.Transfers); got != len(evidence.Payouts) {
				t.Errorf("%d requests at the rail for %d payouts", got, len(evidence.Payouts))
			}
		})
	}
}

// hold takes the lock of an account, until it is released or the test ends.
func hold(t *testing.T, s *stack.Stack, account string) *client.Lock {
	t.Helper()
	c, err := client.New([]string{s.Lock.URL()})
	must(t, "make client", err)
	t.Cleanup(func() { _ = c.Close() })
	session, err := c.OpenSession(t.Context(), "holder of "+account, client.WithTTL(time.Minute))
	must(t, "open session", err)
	held, err := session.TryAcquire(t.Context(), judge.KeyOf(account))
	must(t, "acquire", err)
	return held
}

// madeUp are tokens that the holder's account must not take: those above what was granted would lock everybody out of it. The other lock
// was granted later, so that its number is higher too.
func madeUp(t *testing.T, s *stack.Stack, honest, other *client.Lock) map[string]string {
	t.Helper()
	highest := strconv.Itoa(math.MaxInt64)
	number, signature, _ := strings.Cut(honest.TokenHeader(), ".")
	elsewhere, err := lock.NewKey("elsewhere", honest.Key().Name())
	must(t, "make key", err)
	_, unknown, err := ed25519.GenerateKey(nil)
	must(t, "make signing key", err)
	if other.Token() <= honest.Token() {
		t.Fatalf("token %d was granted after %d", other.Token(), honest.Token())
	}
	return map[string]string{
		"the holder's number without its signature": number,
		"the highest number":                        highest,
		"the highest number with a true signature":  highest + "." + signature,
		"signed by nobody that is known":            fence.NewSigner(unknown).Sign(honest.Key(), math.MaxInt64, "0123abcd"),
		"granted for another account":               other.TokenHeader(),
		"signed for another account":                s.Sign(other.Key(), math.MaxInt64),
		"signed for another namespace":              s.Sign(elsewhere, math.MaxInt64),
	}
}

// refused makes every write under a token, each of which must get the code.
func refused(t *testing.T, s *stack.Stack, o stack.Order, what, token string, code lock.Code) {
	t.Helper()
	for _, method := range writes() {
		if err := client.Translate(s.Write(t.Context(), method, o, token)); lock.CodeOf(err) != code {
			t.Errorf("%s: %s was answered %v; want %s", what, method, err, code)
		}
	}
}
