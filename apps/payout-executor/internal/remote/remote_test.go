package remote_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"
	"go.uber.org/goleak"

	"github.com/fencelock/fencelock/apps/payout-executor/internal/model"
	"github.com/fencelock/fencelock/apps/payout-executor/internal/payout"
	"github.com/fencelock/fencelock/apps/payout-executor/internal/remote"
	v1 "github.com/fencelock/fencelock/contracts/api/fencelock/payments/v1"
	"github.com/fencelock/fencelock/core/lock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	ref   = payout.Ref{ID: "p", Account: "a"}
	token = payout.Token{Number: 7, Text: "7"}
)

// served is a world with one account and one payout, and clients of it.
func served(t *testing.T) (*model.World, *remote.Payments, *remote.Rail, string) {
	t.Helper()
	w := model.New()
	w.Open("a", 100)
	w.Ask("p", "a", 30, "bob")
	server := httptest.NewServer(w.Handler())
	t.Cleanup(server.Close)
	c := web(t)
	return w, remote.NewPayments(c, server.URL), remote.NewRail(c, server.URL), server.URL
}

func web(t *testing.T) *http.Client {
	t.Helper()
	c := remote.NewHTTPClient(4)
	t.Cleanup(c.CloseIdleConnections)
	return c
}

func TestEveryCallIsUnderstood(t *testing.T) {
	t.Parallel()
	w, payments, rail, url := served(t)
	ctx := t.Context()
	got, err := payments.Get(ctx, "p")
	if err != nil || got.Balance != 100 || got.Payout.State != payout.StatePending || got.Payout.Ref != ref || got.Payout.Amount != 30 ||
		got.Payout.Destination != "bob" || got.Payout.CreatedAt.IsZero() {
		t.Errorf("get: %+v, %v", got, err)
	}
	if got, err = payments.Claim(ctx, token, ref); err != nil || got.Payout.State != payout.StateClaimed || got.Payout.Token != 7 {
		t.Errorf("claim: %+v, %v", got, err)
	}
	moved, err := payments.Advance(ctx, token, payout.Step{Ref: ref, From: payout.StateClaimed, To: payout.StateRailSubmitted})
	if err != nil || moved.State != payout.StateRailSubmitted {
		t.Errorf("advance: %+v, %v", moved, err)
	}
	if _, there, err := rail.Lookup(ctx, token, ref); there || err != nil {
		t.Errorf("lookup: %v, %v", there, err)
	}
	sent, err := rail.Submit(ctx, token, got.Payout)
	if err != nil || sent.Outcome != payout.Acked || sent.Reference == "" || sent.Token != 7 || sent.Ref != ref || sent.Amount != 30 {
		t.Errorf("submit: %+v, %v", sent, err)
	}
	if again, there, err := rail.Lookup(ctx, token, ref); !there || again != sent || err != nil {
		t.Errorf("lookup: %+v, %v, %v", again, there, err)
	}
	step := payout.Step{Ref: ref, From: payout.StateRailSubmitted, To: payout.StateRailAcked, Reference: sent.Reference}
	if moved, err = payments.Advance(ctx, token, step); err != nil || moved.Reference != sent.Reference {
		t.Errorf("advance: %+v, %v", moved, err)
	}
	if got, err = payments.Post(ctx, token, ref, 70); err != nil || got.Payout.State != payout.StatePosted || got.Balance != 70 {
		t.Errorf("post: %+v, %v", got, err)
	}
	lists(t, payments, rail, url)
	if faults := w.Faults(); len(faults) > 0 {
		t.Error(faults)
	}
}

func lists(t *testing.T, payments *remote.Payments, rail *remote.Rail, url string) {
	t.Helper()
	ctx := t.Context()
	if all, next, err := payments.List(ctx, nil, 10, ""); len(all) != 1 || next != "" || err != nil {
		t.Errorf("payouts: %+v, %q, %v", all, next, err)
	}
	if none, _, err := payments.List(ctx, []payout.State{payout.StatePending}, 10, ""); len(none) != 0 || err != nil {
		t.Errorf("payouts: %+v, %v", none, err)
	}
	if all, _, err := rail.List(ctx, 10, ""); len(all) != 1 || err != nil {
		t.Errorf("submissions: %+v, %v", all, err)
	}
	l, err := payments.Ledger(ctx)
	if err != nil || len(l.Accounts) != 2 || l.Accounts[0].Entries != -30 || len(l.Groups) != 1 || l.Groups[0].Paid != 30 {
		t.Errorf("ledger: %+v, %v", l, err)
	}
	for _, address := range []string{url, url + "/", url + "/transfers"} {
		transfers, err := remote.Transfers(ctx, web(t), address)
		if err != nil || len(transfers) != 1 || transfers[0] != (remote.Transfer{Payout: "p", Amount: 30, Executed: true}) {
			t.Errorf("transfers at %s: %+v, %v", address, transfers, err)
		}
	}
}

// TestErrorsAreToldApart: a definite refusal, a fence, no answer, and nobody there.
func TestErrorsAreToldApart(t *testing.T) {
	t.Parallel()
	w, payments, rail, _ := served(t)
	ctx := t.Context()
	refused := func(err error, code payout.Refusal, state payout.State) {
		t.Helper()
		var e *payout.RefusedError
		if !errors.As(err, &e) || e.Code != code || e.State != state || lock.IsRetryable(err) {
			t.Errorf("error %v, want %s %s", err, code, state)
		}
	}
	_, err := payments.Get(ctx, "none")
	refused(err, payout.NotFound, "")
	_, err = payments.Post(ctx, token, ref, 70)
	if !errors.Is(err, lock.ErrFencedOut) || lock.IsRetryable(err) {
		t.Errorf("error %v", err)
	}
	_, _ = payments.Claim(ctx, token, ref)
	_, err = payments.Post(ctx, token, ref, 70)
	refused(err, payout.WrongState, payout.StateClaimed)
	p := payout.Payout{Ref: ref, Amount: 30, Destination: "bob"}
	_, _ = rail.Submit(ctx, token, p)
	_, err = rail.Submit(ctx, token, p)
	refused(err, payout.Duplicate, "")
	_, err = payments.Claim(ctx, payout.Token{}, ref)
	if !errors.Is(err, lock.ErrInvalid) {
		t.Errorf("error %v", err)
	}
	w.Weather(func(model.Call) model.Passage { return model.Passage{Refuse: model.NotAnswered()} })
	if _, err = payments.Claim(ctx, token, ref); !lock.IsRetryable(err) || !lock.IsAmbiguous(err) {
		t.Errorf("error %v", err)
	}
	w.Weather(func(model.Call) model.Passage { return model.Passage{AnswerLost: true} })
	if _, err = payments.Claim(ctx, token, ref); !lock.IsRetryable(err) || !lock.IsAmbiguous(err) {
		t.Errorf("error %v", err)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, err = payments.Claim(ended, token, ref); !lock.IsRetryable(err) {
		t.Errorf("error %v", err)
	}
	_, err = remote.NewPayments(web(t), "http://127.0.0.1:1").Claim(ctx, token, ref)
	if !lock.IsRetryable(err) || lock.IsAmbiguous(err) {
		t.Errorf("error %v", err)
	}
}

// TestEveryRefusalIsOne, also one that only a newer service knows: taken for an answer that was lost it would be asked again and again,
// and hold up the account's other payouts.
func TestEveryRefusalIsOne(t *testing.T) {
	t.Parallel()
	w, payments, _, _ := served(t)
	names := maps.Clone(v1.ErrorCode_name)
	names[99] = "99"
	for number, name := range names {
		refusal := connect.NewError(connect.CodeFailedPrecondition, errors.New("refused"))
		detail, err := connect.NewErrorDetail(&v1.ErrorDetail{Code: v1.ErrorCode(number)})
		if err != nil {
			t.Fatal(err)
		}
		refusal.AddDetail(detail)
		w.Weather(func(model.Call) model.Passage { return model.Passage{Refuse: refusal} })
		_, err = payments.Post(t.Context(), token, ref, 70)
		want := payout.Refusal(strings.TrimPrefix(name, "ERROR_CODE_"))
		if e, ok := errors.AsType[*payout.RefusedError](err); !ok || e.Code != want || lock.IsRetryable(err) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// TestALedgerOfManyPagesIsReadWhole: accounts and payouts that no single answer holds.
func TestALedgerOfManyPagesIsReadWhole(t *testing.T) {
	t.Parallel()
	w, payments, _, _ := served(t)
	const accounts, paid = 1100, 1300
	for n := range accounts {
		w.Open(fmt.Sprint("more-", n), 5)
	}
	w.Open("rich", paid)
	w.Tamper(func(b *model.Books) {
		for n := range paid {
			id := fmt.Sprint("paid-", n)
			b.Payouts = append(b.Payouts, &v1.Payout{Id: id, Account: "rich", Amount: 1})
			b.Entries = append(b.Entries, model.Entry{Payout: id, Account: "rich", Amount: -1}, model.Entry{Payout: id, Account: "rail", Amount: 1})
		}
	})
	l, err := payments.Ledger(t.Context())
	if err != nil || len(l.Accounts) != accounts+3 || len(l.Groups) != paid {
		t.Fatalf("%d accounts, %d groups, %v", len(l.Accounts), len(l.Groups), err)
	}
	for n, g := range l.Groups {
		if g.Entries != 2 || g.Paid != 1 || n > 0 && g.Payout <= l.Groups[n-1].Payout {
			t.Fatalf("group %d is %+v", n, g)
		}
	}
}

// TestACallIsSentOnce: over a connection that was used before, and then ends after the request without an answer. A client that sends
// the request again over a new one would pay twice.
func TestACallIsSentOnce(t *testing.T) {
	t.Parallel()
	var submits atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/Submit") {
			rw.Header().Set("Content-Type", "application/proto")
			return // an empty answer, and the connection stays
		}
		submits.Add(1)
		_, _ = io.Copy(io.Discard, r.Body)
		panic(http.ErrAbortHandler)
	}))
	t.Cleanup(server.Close)
	rail := remote.NewRail(web(t), server.URL)
	for n := range int32(20) {
		if err := rail.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := rail.Submit(t.Context(), token, payout.Payout{Ref: ref}); err == nil {
			t.Error("no error")
		}
		if got := submits.Load(); got != n+1 {
			t.Fatalf("%d calls arrived %d times", n+1, got)
		}
	}
}

// TestARedirectIsNotFollowed: to follow it would be to send the call again.
func TestARedirectIsNotFollowed(t *testing.T) {
	t.Parallel()
	w, _, _, url := served(t)
	server := httptest.NewServer(http.RedirectHandler(url+"/fencelock.payments.v1.RailService/Submit", http.StatusTemporaryRedirect))
	t.Cleanup(server.Close)
	if _, err := remote.NewRail(web(t), server.URL).Submit(t.Context(), token, payout.Payout{Ref: ref, Amount: 1}); err == nil {
		t.Error("no error")
	}
	if n := w.Count("Submit"); n != 0 {
		t.Errorf("it was sent %d times", n)
	}
}

func TestAListingThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for name, handler := range map[string]http.HandlerFunc{
		"not there": func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusNotFound) },
		"no JSON":   func(rw http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(rw, "<html>") },
		"cut":       func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		server := httptest.NewServer(handler)
		t.Cleanup(server.Close)
		if found, err := remote.Transfers(t.Context(), web(t), server.URL); err == nil {
			t.Errorf("%s: %v", name, found)
		}
	}
	if _, err := remote.Transfers(t.Context(), web(t), ":"); err == nil {
		t.Error("no URL")
	}
}

// TestAServiceThatAcceptsAndSaysNothing ends with the caller's patience.
func TestAServiceThatAcceptsAndSaysNothing(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		if conn, err := listener.Accept(); err == nil {
			cancel()
			_, _ = io.Copy(io.Discard, conn)
			_ = conn.Close()
		}
	}()
	_, err = remote.NewRail(web(t), "http://"+listener.Addr().String()).Submit(ctx, token, payout.Payout{Ref: ref})
	if !lock.IsAmbiguous(err) {
		t.Errorf("error %v", err)
	}
}
