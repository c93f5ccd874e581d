package guard_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/adapters/rpc/guard"
	"github.com/fencelock/fencelock/core/fence"
	"github.com/fencelock/fencelock/core/lock"
)

// keyOf takes the account from the path.
func keyOf(r *http.Request) (lock.Key, error) {
	if r.PathValue("account") == "broken" {
		return lock.Key{}, errors.New("password of the database")
	}
	return lock.NewKey("", "payout:"+r.PathValue("account"))
}

// serve puts a middleware before a handler that answers with the token it was given.
func serve(middleware func(http.Handler) http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /accounts/{account}", middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, ok := guard.Token(r.Context())
		_, _ = io.WriteString(w, strconv.Itoa(int(token))+" "+strconv.FormatBool(ok))
	})))
	return mux
}

// post sends a request with any number of headers.
func post(t *testing.T, h http.Handler, account string, tokens ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/accounts/"+account, nil)
	for _, token := range tokens {
		r.Header.Add(guard.Header, token)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// refusal is the body of an answer without the handler.
type refusal struct {
	Code, Message string
	Details       map[string]string
}

// refuses expects an answer of the guard's.
func refuses(t *testing.T, what string, w *httptest.ResponseRecorder, status int, code string) refusal {
	t.Helper()
	var body refusal
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil || w.Code != status || body.Code != code || body.Message == "" {
		t.Errorf("%s: got %d %s, want %d %s", what, w.Code, w.Body, status, code)
	}
	if got := w.Header().Get("Content-Type"); got != "application/json" {
		t.Errorf("%s: the body is %s", what, got)
	}
	return body
}

func accepts(t *testing.T, what string, w *httptest.ResponseRecorder, token lock.Token) {
	t.Helper()
	if want := strconv.Itoa(int(token)) + " true"; w.Code != http.StatusOK || w.Body.String() != want {
		t.Errorf("%s: got %d %s, want %s", what, w.Code, w.Body, want)
	}
}

func TestMiddlewareTakesOneTokenInItsForm(t *testing.T) {
	t.Parallel()
	signer, verifier := signing(t)
	signed := signer.Sign(newKey(t, "payout:1"), 33, lock.NewSessionID().Hash())
	for name, reader := range map[string]fence.Reader{"unsigned": fence.Unsigned{}, "signed": verifier} {
		h := serve(guard.NewMiddleware(reader, keyOf))
		accepts(t, name+": the signed form", post(t, h, "1", signed), 33)
		body := refuses(t, name+": no token", post(t, h, "1"), http.StatusPreconditionRequired, "INVALID")
		if body.Details["field"] != guard.Header {
			t.Errorf("the message does not name the header: %+v", body)
		}
		for what, tokens := range map[string][]string{
			"empty": {""}, "zero": {"0"}, "negative": {"-1"}, "a word": {"x"}, "a plus": {"+33"}, "leading zero": {"033"},
			"too high": {"9223372036854775808"}, "two headers": {signed, signed}, "two numbers": {"33", "34"}, "one of two is empty": {"", "33"},
			"a list": {"33, 34"}, "a list without space": {"33,34"}, "a list of signed ones": {signed + "," + signed}, "huge": {strings.Repeat("9", 1<<20)},
			"cut off": {signed[:len(signed)-1]}, "quoted": {`"33"`}, "a space before": {" 33"},
		} {
			refuses(t, name+": "+what, post(t, h, "1", tokens...), http.StatusBadRequest, "INVALID")
		}
	}
}

// careless is a Reader of somebody else's.
type careless struct{ fence.Reader }

func (careless) Read(lock.Key, string) (lock.Token, error) { return 0, nil }

func TestATokenThatNoGrantHasIsRefusedWhoeverReadIt(t *testing.T) {
	t.Parallel()
	refuses(t, "token 0", post(t, serve(guard.NewMiddleware(careless{}, keyOf)), "1", "0"), http.StatusBadRequest, "INVALID")
}

func TestMiddlewareBelievesWhatWasSignedForTheKey(t *testing.T) {
	t.Parallel()
	signer, verifier := signing(t)
	stranger, _ := signing(t)
	session := lock.NewSessionID().Hash()
	h := serve(guard.NewMiddleware(verifier, keyOf))
	refuses(t, "a number", post(t, h, "1", "33"), http.StatusForbidden, "DENIED")
	refuses(t, "the highest number", post(t, h, "1", strconv.Itoa(math.MaxInt64)), http.StatusForbidden, "DENIED")
	refuses(t, "another key's", post(t, h, "2", signer.Sign(newKey(t, "payout:1"), 33, session)), http.StatusForbidden, "DENIED")
	refuses(t, "a stranger's", post(t, h, "1", stranger.Sign(newKey(t, "payout:1"), 33, session)), http.StatusForbidden, "DENIED")
	accepts(t, "the key's", post(t, h, "2", signer.Sign(newKey(t, "payout:2"), 33, session)), 33)
	// Who trusts all callers lets the highest number in: that is what signing is for.
	accepts(t, "the highest number, unsigned", post(t, serve(guard.NewMiddleware(fence.Unsigned{}, keyOf)), "1", strconv.Itoa(math.MaxInt64)), math.MaxInt64)
}

func TestMiddlewareRefusesRequestsOfNoKey(t *testing.T) {
	t.Parallel()
	h := serve(guard.NewMiddleware(fence.Unsigned{}, keyOf))
	refuses(t, "a key that cannot be", post(t, h, "a%20b", "33"), http.StatusBadRequest, "INVALID")
	w := post(t, h, "broken", "33")
	refuses(t, "no key", w, http.StatusInternalServerError, "INTERNAL")
	if strings.Contains(w.Body.String(), "password") {
		t.Errorf("the answer tells too much: %s", w.Body)
	}
	nowhere := func(*http.Request) (lock.Key, error) { return lock.Key{}, nil }
	refuses(t, "the zero key", post(t, serve(guard.NewMiddleware(fence.Unsigned{}, nowhere)), "1", "33"), http.StatusBadRequest, "INVALID")
}

func TestMiddlewareAdmitsByTheRule(t *testing.T) {
	t.Parallel()
	marks := newMemory()
	gate := guard.NewGate(marks)
	claim := serve(guard.NewMiddleware(fence.Unsigned{}, keyOf, guard.WithMarks(gate, fence.Above)))
	write := serve(guard.NewMiddleware(fence.Unsigned{}, keyOf, guard.WithMarks(gate, fence.Equal)))
	fenced := func(what string, w *httptest.ResponseRecorder, presented, highest string) {
		t.Helper()
		body := refuses(t, what, w, http.StatusPreconditionFailed, "FENCED_OUT")
		if body.Details["presented"] != presented || body.Details["highest"] != highest || len(body.Details) != 2 {
			t.Errorf("%s: %+v", what, body)
		}
	}
	fenced("a write before its claim", post(t, write, "1", "33"), "33", "0")
	accepts(t, "a claim", post(t, claim, "1", "33"), 33)
	accepts(t, "its write", post(t, write, "1", "33"), 33)
	fenced("a second claim", post(t, claim, "1", "33"), "33", "33")
	accepts(t, "a newer claim", post(t, claim, "1", "9007199254740993"), 9007199254740993)
	fenced("an older write", post(t, write, "1", "33"), "33", "9007199254740993")
	accepts(t, "another account", post(t, claim, "2", "1"), 1)

	marks.fails = lock.Contention("the store did not answer", true, errors.New("password of the database"))
	w := post(t, write, "2", "1")
	refuses(t, "marks that do not answer", w, http.StatusServiceUnavailable, "CONTENTION")
	if w.Header().Get("Retry-After") == "" || strings.Contains(w.Body.String(), "password") {
		t.Errorf("the answer is %v %s", w.Header(), w.Body)
	}
	marks.fails = &lock.Error{Code: lock.CodeNotLeader, Message: "the store has no leader"}
	refuses(t, "marks without a leader", post(t, write, "2", "1"), http.StatusServiceUnavailable, "NOT_LEADER")
	marks.fails = errors.New("password of the database")
	refuses(t, "marks that are broken", post(t, write, "2", "1"), http.StatusInternalServerError, "INTERNAL")
	if _, left := gate.At(""); left != 0 {
		t.Errorf("%d resources are left behind", left)
	}
}

func TestNoGuardNoToken(t *testing.T) {
	t.Parallel()
	if token, ok := guard.Token(context.Background()); ok || token != 0 {
		t.Errorf("got %d, %v", token, ok)
	}
}

func TestMarksThatAreNotThereLetNobodyIn(t *testing.T) {
	t.Parallel()
	h := serve(guard.NewMiddleware(fence.Unsigned{}, keyOf, guard.WithMarks(nil, fence.Above)))
	defer func() {
		if recover() == nil {
			t.Error("a request was let in")
		}
	}()
	post(t, h, "1", "33")
}
