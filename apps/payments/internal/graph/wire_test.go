package graph_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"

	paymentsv1 "github.com/fencelock/fencelock/contracts/api/fencelock/payments/v1"
	"github.com/fencelock/fencelock/core/fence"
	"github.com/fencelock/fencelock/core/lock"
)

func TestEachRefusalHasItsCode(t *testing.T) {
	t.Parallel()
	payment := startPayment(t, database(t))
	payment.seed()
	ctx, c := t.Context(), payment.payments()
	if _, err := payment.claim(33); err != nil {
		t.Fatal(err)
	}
	_, err := payment.claim(32)
	expect(t, "stale", err, "failed_precondition FENCED_OUT")
	advance := func(from, to paymentsv1.PayoutState) error {
		_, err := c.Advance(ctx, with(&paymentsv1.AdvanceRequest{Id: "p", Account: "a", From: from, To: to, RailReference: "t"}, 33))
		return err
	}
	const (
		claimed, submitted, acked = paymentsv1.PayoutState_PAYOUT_STATE_CLAIMED, paymentsv1.PayoutState_PAYOUT_STATE_RAIL_SUBMITTED,
			paymentsv1.PayoutState_PAYOUT_STATE_RAIL_ACKED
	)
	expect(t, "wrong state", advance(submitted, acked), "failed_precondition WRONG_STATE CLAIMED")
	expect(t, "unlisted", advance(acked, claimed), "invalid_argument INVALID to")
	expect(t, "no state", advance(0, 99), "invalid_argument INVALID to")
	_, err = c.GetPayout(ctx, connect.NewRequest(&paymentsv1.GetPayoutRequest{Id: "x"}))
	expect(t, "no payout", err, "not_found NOT_FOUND")
	_, err = c.OpenAccount(ctx, connect.NewRequest(&paymentsv1.OpenAccountRequest{Id: "a", Balance: 1}))
	expect(t, "other values", err, "already_exists DIFFERENT")
	_, err = c.ListPayouts(ctx, connect.NewRequest(&paymentsv1.ListPayoutsRequest{States: []paymentsv1.PayoutState{99}}))
	expect(t, "no state", err, "invalid_argument INVALID states")

	stub := startStub(t)
	proxy := startProxy(t, database(t), stub.rpc)
	submit := func(token int) error {
		_, err := proxy.rail().Submit(ctx, with(&paymentsv1.SubmitRequest{Payout: "p", Account: "a", Amount: 5, Destination: "d"}, token))
		return err
	}
	if err := submit(33); err != nil {
		t.Fatal(err)
	}
	expect(t, "again", submit(33), "already_exists DUPLICATE")
	expect(t, "stale", submit(32), "failed_precondition FENCED_OUT")
	_, err = proxy.rail().Lookup(ctx, with(&paymentsv1.LookupRequest{Payout: "p", Account: "b"}, 33))
	expect(t, "another account", err, "already_exists DIFFERENT")
}

func TestRefusalsAboutMoneyHaveTheirCodes(t *testing.T) {
	t.Parallel()
	payment := startPayment(t, database(t))
	ctx, c := t.Context(), payment.payments()
	if _, err := c.OpenAccount(ctx, connect.NewRequest(&paymentsv1.OpenAccountRequest{Id: "m", Balance: 100})); err != nil {
		t.Fatal(err)
	}
	for id, amount := range map[string]int64{"first": 60, "second": 60, "third": 101} {
		wanted := &paymentsv1.CreatePayoutRequest{Id: id, Account: "m", Amount: amount, Destination: "d"}
		if _, err := c.CreatePayout(ctx, connect.NewRequest(wanted)); err != nil {
			t.Fatal(err)
		}
	}
	const (
		claimed, submitted, acked = paymentsv1.PayoutState_PAYOUT_STATE_CLAIMED, paymentsv1.PayoutState_PAYOUT_STATE_RAIL_SUBMITTED,
			paymentsv1.PayoutState_PAYOUT_STATE_RAIL_ACKED
	)
	submit := func(id string, token int) error {
		if _, err := c.Claim(ctx, with(&paymentsv1.ClaimRequest{Id: id, Account: "m"}, token)); err != nil {
			t.Fatal(err)
		}
		_, err := c.Advance(ctx, with(&paymentsv1.AdvanceRequest{Id: id, Account: "m", From: claimed, To: submitted}, token))
		return err
	}
	expect(t, "more than there is", submit("third", 31), "failed_precondition INSUFFICIENT_FUNDS")
	if err := submit("first", 32); err != nil {
		t.Fatal(err)
	}
	_, err := c.Advance(ctx, with(&paymentsv1.AdvanceRequest{Id: "first", Account: "m", From: submitted, To: acked, RailReference: "t"}, 32))
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Post(ctx, with(&paymentsv1.PostRequest{Id: "first", Account: "m", BalanceAfter: 41}, 32))
	expect(t, "another balance", err, "failed_precondition WRONG_BALANCE")
	expect(t, "beside another", submit("second", 33), "failed_precondition FUNDS_RESERVED")
}

func TestAWriteNeedsOneTokenOfOneForm(t *testing.T) {
	t.Parallel()
	payment := startPayment(t, database(t))
	payment.seed()
	c := payment.payments()
	claim := connect.NewRequest(&paymentsv1.ClaimRequest{Id: "p", Account: "a"})
	_, err := c.Claim(t.Context(), claim)
	expect(t, "none", err, "invalid_argument INVALID Fencelock-Token")
	claim.Header().Add("Fencelock-Token", "33")
	claim.Header().Add("Fencelock-Token", "34")
	_, err = c.Claim(t.Context(), claim)
	expect(t, "two", err, "invalid_argument INVALID Fencelock-Token")
	for _, text := range []string{"", "0", "-1", "x", "033", "9223372036854775808", "33, 34", strings.Repeat("1", 4000)} {
		_, err := payment.claim(text)
		if got := said(err); !strings.HasPrefix(got, "invalid_argument INVALID") {
			t.Errorf("%.40q: %s", text, got)
		}
	}
	for _, account := range []string{"", "a b", "../b", strings.Repeat("a", 65)} {
		_, err := c.Claim(t.Context(), with(&paymentsv1.ClaimRequest{Id: "p", Account: account}, 33))
		expect(t, "account "+account, err, "invalid_argument INVALID account")
	}
}

// TestWithoutKeysEveryCallerIsBelieved documents what that means: who makes up the highest token locks everyone out.
func TestWithoutKeysEveryCallerIsBelieved(t *testing.T) {
	t.Parallel()
	payment := startPayment(t, database(t))
	payment.seed()
	if _, err := payment.claim(int64(math.MaxInt64)); err != nil {
		t.Fatal(err)
	}
	_, err := payment.claim(34)
	expect(t, "the true holder", err, "failed_precondition FENCED_OUT")
}

func TestWithKeysATokenMustBeSignedForItsAccount(t *testing.T) {
	t.Parallel()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "key.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	stub := startStub(t)
	payment := startPayment(t, database(t), "--fence.public-key-file="+file)
	proxy := startProxy(t, database(t), stub.rpc, "--fence.public-key-file="+file)
	payment.seed()
	sign := func(name string, token lock.Token) string {
		key, err := lock.NewKey("", name)
		if err != nil {
			t.Fatal(err)
		}
		return fence.NewSigner(private).Sign(key, token, "0123abcd")
	}
	lookup := func(token any) error {
		_, err := proxy.rail().Lookup(t.Context(), with(&paymentsv1.LookupRequest{Payout: "p", Account: "a"}, token))
		return err
	}
	for what, token := range map[string]any{
		"the highest number": int64(math.MaxInt64), "a number": 33, "another account's": sign("payout:b", 33), "another lock's": sign("a", 33),
	} {
		_, err := payment.claim(token)
		expect(t, what, err, "permission_denied DENIED")
		expect(t, what, lookup(token), "permission_denied DENIED")
	}
	good := sign("payout:a", 33)
	_, err = payment.payments().Claim(t.Context(), with(&paymentsv1.ClaimRequest{Id: "p", Account: "b"}, good))
	expect(t, "at another account", err, "permission_denied DENIED")
	_, err = proxy.rail().Submit(t.Context(), with(&paymentsv1.SubmitRequest{Payout: "p", Account: "b", Amount: 1, Destination: "d"}, good))
	expect(t, "at another account", err, "permission_denied DENIED")
	if claimed, err := payment.claim(good); err != nil || claimed.Msg.GetAccount().GetFence() != 33 {
		t.Errorf("signed: %v, %v", claimed, err)
	}
	if err := lookup(good); err != nil {
		t.Errorf("signed: %v", err)
	}
}

// TestBadRequests are those that reach no method, and those of HTTP by hand.
func TestBadRequests(t *testing.T) {
	t.Parallel()
	payment := startPayment(t, database(t))
	post := func(method, body string) (int, string) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
			payment.rpc+"/fencelock.payments.v1.PaymentService/"+method, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		response, err := payment.client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		answer, _ := io.ReadAll(response.Body)
		return response.StatusCode, string(answer)
	}
	if status, body := post("OpenAccount", `{"id":"a","balance":"9223372036854775807"}`); status != 400 || !strings.Contains(body, "balance") {
		t.Errorf("too much: %d %s", status, body)
	}
	for _, body := range []string{"", "{", `{"id":"a","balence":"1"}`, `{"id":"a","balance":"9223372036854775808"}`, `{"id":7}`, `[]`} {
		if status, answer := post("OpenAccount", body); status != 400 {
			t.Errorf("%s: %d %s", body, status, answer)
		}
	}
	if status, answer := post("OpenAccount", `{"id":"`+strings.Repeat("a", 1<<20)+`"}`); status != 429 {
		t.Errorf("huge: %d %s", status, answer)
	}
	if status, _ := post("Nothing", "{}"); status != 404 {
		t.Errorf("no method: %d", status)
	}
	if status, body := post("OpenAccount", `{"id":"a","balance":"1000"}`); status != 200 ||
		strings.ReplaceAll(body, " ", "") != `{"account":{"id":"a","balance":"1000","fence":"0"}}` {
		t.Errorf("good: %d %s", status, body)
	}
}

// logged returns the lines of the log with this message.
func (r *running) logged(message string) []map[string]any {
	r.t.Helper()
	var found []map[string]any
	for line := range strings.Lines(r.log.String()) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			r.t.Fatalf("line %q: %v", line, err)
		}
		if fields["msg"] == message {
			found = append(found, fields)
		}
	}
	return found
}

func TestRefusalsAreCountedAndLogged(t *testing.T) {
	t.Parallel()
	stub := startStub(t)
	proxy := startProxy(t, database(t), stub.rpc)
	payment := startPayment(t, database(t))
	payment.seed()
	ctx := t.Context()
	counters := func(want ...string) {
		t.Helper()
		for i, c := range []struct {
			r      *running
			series string
		}{
			{payment, `lock_fenced_out_total{resource="account"}`}, {payment, `lock_fenced_out_total{resource="ledger"}`},
			{payment, `payout_transition_refused_total`}, {proxy, `lock_fenced_out_total{resource="rail"}`},
			{proxy, `rail_duplicate_attempted_total`}, {proxy, `rail_submission_total{outcome="acked"}`},
			{proxy, `rail_submission_total{outcome="rejected"}`}, {proxy, `rail_submission_total{outcome="timeout"}`},
			{proxy, `rail_submission_total{outcome="fenced"}`}, {stub, `rail_stub_transfer_total{outcome="executed"}`},
		} {
			if got := c.r.metric(c.series); got != want[i] {
				t.Errorf("%s is %s, want %s", c.series, got, want[i])
			}
		}
	}
	counters("0", "0", "0", "0", "0", "0", "0", "0", "0", "0")
	_, _ = payment.claim(33)
	_, _ = payment.claim(32)
	_, _ = payment.payments().Post(ctx, with(&paymentsv1.PostRequest{Id: "p", Account: "a", BalanceAfter: 1}, 32))
	_, _ = payment.payments().Advance(ctx, with(&paymentsv1.AdvanceRequest{
		Id: "p", Account: "a", From: paymentsv1.PayoutState_PAYOUT_STATE_POSTED, To: paymentsv1.PayoutState_PAYOUT_STATE_CLAIMED,
	}, 33))
	submit := func(payout, to string, token int) {
		_, _ = proxy.rail().Submit(ctx, with(&paymentsv1.SubmitRequest{Payout: payout, Account: "a", Amount: 5, Destination: to}, token))
	}
	submit("p", "d", 33)
	submit("p", "d", 33)
	submit("q", "decline", 33)
	submit("r", "lost-reply", 33)
	submit("s", "d", 32)
	_, _ = proxy.rail().Lookup(ctx, with(&paymentsv1.LookupRequest{Payout: "p", Account: "a"}, 31))
	counters("1", "1", "1", "2", "1", "1", "1", "1", "1", "1")
	for _, c := range []struct {
		r       *running
		message string
		level   string
		times   int
	}{
		{payment, "fenced_out", "WARN", 2}, {payment, "payout_transition_refused", "WARN", 1}, {proxy, "fenced_out", "WARN", 2},
		{proxy, "rail_submitted", "INFO", 3}, {proxy, "rail_ambiguous", "WARN", 1}, {proxy, "duplicate_rail_submission_attempted", "WARN", 1},
	} {
		lines := c.r.logged(c.message)
		if len(lines) != c.times {
			t.Errorf("%s is logged %d times, want %d", c.message, len(lines), c.times)
			continue
		}
		if l := lines[0]; l["level"] != c.level || l["payout"] == "" || l["account"] != "a" || l["token"] == nil {
			t.Errorf("logged %v", l)
		}
	}
	if l := payment.logged("fenced_out"); l[0]["resource"] != "account" || l[1]["resource"] != "ledger" || l[1]["highest"] != 33.0 || l[1]["token"] != 32.0 {
		t.Errorf("logged %v", l)
	}
}

// TestFencingOffIsLoud: it is said at each start, at the level that nobody hides.
func TestFencingOffIsLoud(t *testing.T) {
	t.Parallel()
	stub := startStub(t)
	payment := startPayment(t, database(t), "--payment.fencing.enabled=false", "--log.level=error")
	proxy := startProxy(t, database(t), stub.rpc, "--rail.proxy.fencing.enabled=false", "--log.level=error")
	for _, r := range []*running{payment, proxy} {
		if l := r.logged("fencing_off"); len(l) != 1 || l[0]["level"] != "ERROR" {
			t.Errorf("logged %v", r.log)
		}
	}
	payment.seed()
	for _, token := range []int{33, 32} {
		if _, err := payment.claim(token); err != nil {
			t.Errorf("claim by %d: %v", token, err)
		}
		_, err := proxy.rail().Submit(t.Context(), with(&paymentsv1.SubmitRequest{Payout: "p", Account: "a", Amount: 5, Destination: "d"}, token))
		if err != nil {
			t.Errorf("submit by %d: %v", token, err)
		}
	}
	if n := stub.metric(`rail_stub_transfer_total{outcome="executed"}`); n != "2" {
		t.Errorf("%s transfers", n)
	}
}

func TestAnOpenAddressIsAWarning(t *testing.T) {
	t.Parallel()
	open := startStub(t, "--rail.stub.addr=0.0.0.0:0")
	if l := open.logged("open_to_network"); len(l) != 1 || l[0]["key"] != "rail.stub.addr" {
		t.Errorf("logged %v", open.log)
	}
	if l := startStub(t).logged("open_to_network"); len(l) != 0 {
		t.Errorf("logged %v", l)
	}
}
