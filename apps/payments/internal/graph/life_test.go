package graph_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"

	"github.com/fencelock/fencelock/apps/payments/internal/graph"
	"github.com/fencelock/fencelock/apps/program"
	paymentsv1 "github.com/fencelock/fencelock/contracts/api/fencelock/payments/v1"
	"github.com/fencelock/fencelock/tools/testenv"
)

// TestAPayoutFromBeginningToEnd is what an executor does, over the wire, through all three programs.
func TestAPayoutFromBeginningToEnd(t *testing.T) {
	t.Parallel()
	stub := startStub(t)
	proxy := startProxy(t, database(t), stub.rpc)
	payment := startPayment(t, database(t))
	payment.seed()
	ctx, accounts, rail := t.Context(), payment.payments(), proxy.rail()
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	claimed, err := payment.claim(33)
	must("claim", err)
	advance := func(from, to paymentsv1.PayoutState, reference string) {
		t.Helper()
		_, err := accounts.Advance(ctx, with(&paymentsv1.AdvanceRequest{Id: "p", Account: "a", From: from, To: to, RailReference: reference}, 33))
		must("advance", err)
	}
	advance(paymentsv1.PayoutState_PAYOUT_STATE_CLAIMED, paymentsv1.PayoutState_PAYOUT_STATE_RAIL_SUBMITTED, "")
	submitted, err := rail.Submit(ctx, with(&paymentsv1.SubmitRequest{Payout: "p", Account: "a", Amount: 100, Destination: "d"}, 33))
	must("submit", err)
	if s := submitted.Msg.GetSubmission(); s.GetOutcome() != paymentsv1.SubmissionOutcome_SUBMISSION_OUTCOME_ACKED || s.GetToken() != 33 {
		t.Errorf("submitted %v", s)
	}
	found, err := rail.Lookup(ctx, with(&paymentsv1.LookupRequest{Payout: "p", Account: "a"}, 33))
	must("look up", err)
	if found.Msg.GetSubmission().String() != submitted.Msg.GetSubmission().String() {
		t.Errorf("looked up %v", found.Msg)
	}
	none, err := rail.Lookup(ctx, with(&paymentsv1.LookupRequest{Payout: "q", Account: "a"}, 33))
	if must("look up", err); none.Msg.GetSubmission() != nil {
		t.Errorf("looked up %v", none.Msg)
	}
	advance(paymentsv1.PayoutState_PAYOUT_STATE_RAIL_SUBMITTED, paymentsv1.PayoutState_PAYOUT_STATE_RAIL_ACKED, submitted.Msg.GetSubmission().GetRailReference())
	balance := claimed.Msg.GetAccount().GetBalance() - claimed.Msg.GetPayout().GetAmount()
	posted, err := accounts.Post(ctx, with(&paymentsv1.PostRequest{Id: "p", Account: "a", BalanceAfter: balance}, 33))
	must("post", err)
	if posted.Msg.GetPayout().GetState() != paymentsv1.PayoutState_PAYOUT_STATE_POSTED || posted.Msg.GetAccount().GetBalance() != 900 {
		t.Errorf("posted %v", posted.Msg)
	}
	ledger, err := accounts.GetLedger(ctx, connect.NewRequest(&paymentsv1.GetLedgerRequest{}))
	must("ledger", err)
	if got := fmt.Sprint(ledger.Msg.GetAccounts(), ledger.Msg.GetGroups()); strings.Join(strings.Fields(got), " ") !=
		`[id:"a" balance:900 opening:1000 entries:-100 id:"rail" balance:100 entries:100] [payout:"p" entries:2 paid:100]` {
		t.Errorf("ledger %s", got)
	}
	checkListings(t, payment, proxy)
	for _, r := range []*running{payment, proxy, stub} {
		if code := r.stop(); code != program.ExitOK {
			t.Errorf("exit code %d", code)
		}
	}
}

// checkListings looks at what stands in the lists after the payout "p" was posted.
func checkListings(t *testing.T, payment, proxy *running) {
	t.Helper()
	ctx, accounts := t.Context(), payment.payments()
	events, err := accounts.ListEvents(ctx, connect.NewRequest(&paymentsv1.ListEventsRequest{}))
	if err != nil || len(events.Msg.GetEvents()) != 6 {
		t.Fatalf("events %v, %v", events, err)
	}
	if e := events.Msg.GetEvents()[2]; e.GetFrom() != paymentsv1.PayoutState_PAYOUT_STATE_PENDING || e.GetTo() != paymentsv1.PayoutState_PAYOUT_STATE_CLAIMED ||
		e.GetToken() != 33 || e.GetFence() != 0 || e.GetPayout() != "p" || e.GetAccount() != "a" || !e.GetAt().IsValid() {
		t.Errorf("event %v", e)
	}
	payouts, err := accounts.ListPayouts(ctx, connect.NewRequest(&paymentsv1.ListPayoutsRequest{
		States: []paymentsv1.PayoutState{paymentsv1.PayoutState_PAYOUT_STATE_POSTED}, PageSize: 1,
	}))
	if err != nil || len(payouts.Msg.GetPayouts()) != 1 || payouts.Msg.GetNextPageToken() == "" {
		t.Fatalf("payouts %v, %v", payouts, err)
	}
	got, err := accounts.GetPayout(ctx, connect.NewRequest(&paymentsv1.GetPayoutRequest{Id: "p"}))
	if err != nil || got.Msg.GetPayout().String() != payouts.Msg.GetPayouts()[0].String() || got.Msg.GetAccount().GetFence() != 33 {
		t.Errorf("payout %v, %v", got, err)
	}
	submissions, err := proxy.rail().ListSubmissions(ctx, connect.NewRequest(&paymentsv1.ListSubmissionsRequest{}))
	if err != nil || len(submissions.Msg.GetSubmissions()) != 1 {
		t.Errorf("submissions %v, %v", submissions, err)
	}
}

func TestADatabaseThatIsAwayIsUnavailableAndComesBack(t *testing.T) {
	t.Parallel()
	stub := startStub(t)
	toPayment, toProxy := testenv.NewProxy(t, database(t)), testenv.NewProxy(t, database(t))
	payment, proxy := startPayment(t, toPayment.URL()), startProxy(t, toProxy.URL(), stub.rpc)
	payment.seed()
	lookup := func() error {
		_, err := proxy.rail().Lookup(t.Context(), with(&paymentsv1.LookupRequest{Payout: "p", Account: "a"}, 33))
		return err
	}
	for _, r := range []*running{payment, proxy, stub} {
		if status, body := r.get("/readyz"); status != http.StatusOK {
			t.Errorf("at first %d %s", status, body)
		}
	}
	toPayment.Cut()
	toProxy.Cut()
	_, err := payment.claim(33)
	expect(t, "claim", err, "unavailable CONTENTION again")
	expect(t, "look up", lookup(), "unavailable CONTENTION again")
	for _, r := range []*running{payment, proxy} {
		if body := r.await(http.StatusServiceUnavailable); !strings.Contains(body, "not ready: the database did not answer") {
			t.Errorf("not ready says %q", body)
		}
		if status, _ := r.get("/healthz"); status != http.StatusOK {
			t.Errorf("alive says %d", status)
		}
	}
	toPayment.Heal()
	toProxy.Heal()
	payment.await(http.StatusOK)
	proxy.await(http.StatusOK)
	if _, err := payment.claim(33); err != nil {
		t.Errorf("claim: %v", err)
	}
	if err := lookup(); err != nil {
		t.Errorf("look up: %v", err)
	}
}

// TestAStoppingProxyWaitsForWhatItSends: the caller has left, and the rail answers only after the signal.
func TestAStoppingProxyWaitsForWhatItSends(t *testing.T) {
	t.Parallel()
	arrived, held := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(held) })
	rail := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		close(arrived)
		<-held
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"id":"t-1","reference":"p","amount":5,"status":"executed"}`)
	}))
	defer rail.Close()
	defer release()
	url := database(t)
	proxy := startProxy(t, url, rail.URL, "--rail.proxy.timeout=60s")
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		_, err := proxy.rail().Submit(ctx, with(&paymentsv1.SubmitRequest{Payout: "p", Account: "a", Amount: 5, Destination: "d"}, 33))
		left <- err
	}()
	<-arrived
	leave()
	expect(t, "the caller", <-left, "canceled")
	stopped := make(chan int, 1)
	go func() { stopped <- proxy.stop() }()
	body := proxy.await(http.StatusServiceUnavailable)
	if !strings.Contains(body, "stopping") {
		t.Errorf("not ready says %q", body)
	}
	select {
	case code := <-stopped:
		t.Fatalf("it stopped with %d", code)
	default:
	}
	release()
	if code := <-stopped; code != program.ExitOK {
		t.Errorf("exit code %d: %s", code, proxy.log)
	}
	again := startProxy(t, url, rail.URL)
	list, err := again.rail().ListSubmissions(t.Context(), connect.NewRequest(&paymentsv1.ListSubmissionsRequest{}))
	if err != nil || len(list.Msg.GetSubmissions()) != 1 ||
		list.Msg.GetSubmissions()[0].GetOutcome() != paymentsv1.SubmissionOutcome_SUBMISSION_OUTCOME_ACKED {
		t.Errorf("submissions %v, %v", list, err)
	}
}

func TestWhatCannotStartSaysWhy(t *testing.T) {
	t.Parallel()
	log := &journal{}
	if code := graph.Payment().Run([]string{"--payment.url=postgres://u:hunter2@127.0.0.1:1/x"}, nil, io.Discard, log, nil); code != program.ExitFailed {
		t.Errorf("no database: exit code %d", code)
	}
	if text := log.String(); !strings.HasPrefix(text, "payment-resource: open the database: ") || strings.Contains(text, "hunter2") {
		t.Errorf("no database: %s", text)
	}
	url := database(t)
	for what, args := range map[string][]string{
		"a key file that is not there": {"--fence.public-key-file=/does/not/exist"},
		"a key file without keys":      {"--fence.public-key-file=/dev/null"},
		"an address that is taken":     {"--payment.addr=" + strings.TrimPrefix(startStub(t).rpc, "http://")},
	} {
		args = append(append(free("payment"), "--payment.url="+url), args...)
		if code := graph.Payment().Run(args, nil, io.Discard, &journal{}, nil); code != program.ExitFailed {
			t.Errorf("%s: exit code %d", what, code)
		}
	}
	if code := graph.Proxy().Run(nil, nil, io.Discard, &journal{}, nil); code != program.ExitConfig {
		t.Errorf("no configuration: exit code %d", code)
	}
}
