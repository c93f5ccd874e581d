package guard_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/fencelock/fencelock/adapters/rpc/guard"
	"github.com/fencelock/fencelock/core/fence"
	"github.com/fencelock/fencelock/core/lock"
)

// enter is one way to be let in.
type enter func(ctx context.Context, rule fence.Rule, resource string, token lock.Token) (leave func(), err error)

// overtake lets a newer token come while an admitted write of an older one is under way, and returns what was
// written last. waiting reports whether the newer one waits.
func overtake(t *testing.T, in enter, waiting func() bool) lock.Token {
	t.Helper()
	var mu sync.Mutex
	var last lock.Token
	write := func(token lock.Token) {
		mu.Lock()
		defer mu.Unlock()
		last = token
	}
	leave, err := in(t.Context(), fence.Above, "a", 33)
	if err != nil {
		t.Fatal(err)
	}
	newer := make(chan error, 1)
	var done atomic.Bool
	go func() {
		leave, err := in(t.Context(), fence.Above, "a", 34)
		if err == nil {
			write(34)
			leave()
		}
		done.Store(true)
		newer <- err
	}()
	eventually(t, "the newer token waits or has written", func() bool { return waiting() || done.Load() })
	write(33)
	leave()
	if err := <-newer; err != nil {
		t.Fatal(err)
	}
	return last
}

func TestAnAdmittedWriteHasEndedBeforeANewerTokenIsAdmitted(t *testing.T) {
	t.Parallel()
	gate := guard.NewGate(newMemory())
	waiting := func() bool { people, _ := gate.At("a"); return people == 2 }
	if last := overtake(t, gate.Enter, waiting); last != 34 {
		t.Errorf("%d has written last", last)
	}
	// The mistake: a check alone.
	check := fence.New(newMemory())
	alone := func(ctx context.Context, rule fence.Rule, resource string, token lock.Token) (func(), error) {
		return func() {}, check.AdmitBy(ctx, rule, resource, token)
	}
	if last := overtake(t, alone, func() bool { return false }); last != 33 {
		t.Errorf("the mistake is not found: %d has written last", last)
	}
}

func TestAWaitForTheTurnHeedsTheContext(t *testing.T) {
	t.Parallel()
	gate := guard.NewGate(newMemory())
	leave, err := gate.Enter(t.Context(), fence.Above, "a", 33)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := gate.Enter(ctx, fence.Above, "a", 34)
		ended <- err
	}()
	eventually(t, "the second waits", func() bool { people, _ := gate.At("a"); return people == 2 })
	cancel()
	if err := <-ended; !errors.Is(err, lock.ErrContention) || !errors.Is(err, context.Canceled) || lock.IsAmbiguous(err) {
		t.Errorf("got %v", err)
	}
	if _, err := gate.Enter(t.Context(), fence.Above, "a", 0); !errors.Is(err, lock.ErrInvalid) {
		t.Errorf("what cannot be admitted waits: %v", err)
	}
	leave()
	leave() // once more does no harm
	again, err := gate.Enter(t.Context(), fence.NotBelow, "a", 33)
	if err != nil {
		t.Errorf("who gave up has raised the mark: %v", err)
	}
	leave() // nor does it end another one's turn
	if people, _ := gate.At("a"); people != 1 {
		t.Errorf("%d are at the resource", people)
	}
	again()
	if _, left := gate.At("a"); left != 0 {
		t.Errorf("%d resources are left behind", left)
	}
}

func TestThoseWhoWaitAreServedInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gate := guard.NewGate(newMemory())
		leave, err := gate.Enter(t.Context(), fence.Above, "a", 1)
		if err != nil {
			t.Fatal(err)
		}
		var served []lock.Token
		for token := lock.Token(2); token <= 9; token++ {
			go func() {
				leave, err := gate.Enter(t.Context(), fence.Above, "a", token)
				if err != nil {
					t.Errorf("%d: %v", token, err)
					return
				}
				served = append(served, token)
				leave()
			}()
			synctest.Wait() // it stands in line
		}
		leave()
		synctest.Wait()
		if len(served) != 8 || !slices.IsSorted(served) {
			t.Errorf("served %v", served)
		}
	})
}

// panicking marks panic for one resource.
type panicking struct{ fence.HighWater }

func (p panicking) Advance(ctx context.Context, resource string, token lock.Token, rule fence.Rule) (fence.Verdict, error) {
	if resource == "default/payout:marks" {
		panic("marks")
	}
	return p.HighWater.Advance(ctx, resource, token, rule)
}

func TestAPanicFreesTheTurn(t *testing.T) {
	t.Parallel()
	gate := guard.NewGate(panicking{newMemory()})
	middleware := guard.NewMiddleware(fence.Unsigned{}, keyOf, guard.WithMarks(gate, fence.NotBelow))
	mux := http.NewServeMux()
	mux.Handle("POST /accounts/{account}", middleware(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("handler") })))
	for _, account := range []string{"marks", "1", "1"} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic was swallowed")
				}
			}()
			post(t, mux, account, "33")
		}()
	}
	if _, left := gate.At(""); left != 0 {
		t.Errorf("%d resources are left behind", left)
	}
}

// TestTheHistoryOfAResourceIsMonotone sends many grants' writes at once over HTTP. Each write takes two steps, and
// callers give up at random; what was admitted must be in order and in one piece.
func TestTheHistoryOfAResourceIsMonotone(t *testing.T) {
	t.Parallel()
	gate := guard.NewGate(newMemory())
	histories := map[string]*[]string{"1": {}, "2": {}}
	mux := http.NewServeMux()
	middleware := guard.NewMiddleware(fence.Unsigned{}, keyOf, guard.WithMarks(gate, fence.NotBelow))
	mux.Handle("POST /accounts/{account}", middleware(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		token, _ := guard.Token(r.Context())
		history := histories[r.PathValue("account")] // without a lock: the turn is one, as the race detector would say
		*history = append(*history, fmt.Sprint("begin ", token))
		*history = append(*history, fmt.Sprint("end ", token))
	})))
	var next atomic.Int64
	var work sync.WaitGroup
	for i := range 8 {
		work.Go(func() {
			for n := range 200 {
				token := next.Add(1)
				ctx, cancel := context.WithCancel(t.Context())
				if n%3 == 0 {
					go cancel()
				}
				for range 2 {
					r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/accounts/"+strconv.Itoa(1+i%2), nil)
					r.Header.Set(guard.Header, strconv.FormatInt(token, 10))
					mux.ServeHTTP(httptest.NewRecorder(), r)
				}
				cancel()
			}
		})
	}
	work.Wait()
	for account, history := range histories {
		if wrong := judge(*history); wrong != "" || len(*history) < 2 {
			t.Errorf("account %s: %q in %d steps", account, wrong, len(*history))
		}
	}
	if _, left := gate.At(""); left != 0 {
		t.Errorf("%d resources are left behind", left)
	}
}

// judge finds what is wrong with a history; "" if nothing is.
func judge(history []string) string {
	highest, open := 0, 0
	for _, line := range history {
		var word string
		var token int
		if _, err := fmt.Sscan(line, &word, &token); err != nil {
			return err.Error()
		}
		switch {
		case word == "begin" && open != 0:
			return fmt.Sprintf("%d begins before %d has ended", token, open)
		case word == "end" && token != open:
			return fmt.Sprintf("%d ends", token)
		case token < highest:
			return fmt.Sprintf("%d comes after %d", token, highest)
		}
		highest, open = token, token
		if word == "end" {
			open = 0
		}
	}
	return ""
}

func TestTheJudgeOfHistoriesCanTell(t *testing.T) {
	t.Parallel()
	for want, history := range map[string][]string{
		"":                            {"begin 1", "end 1", "begin 1", "end 1", "begin 3", "end 3"},
		"3 begins before 1 has ended": {"begin 1", "begin 3"},
		"1 comes after 3":             {"begin 3", "end 3", "begin 1"},
		"3 ends":                      {"begin 1", "end 3"},
	} {
		if got := judge(history); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
