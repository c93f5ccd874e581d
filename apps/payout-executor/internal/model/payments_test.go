package model_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"connectrpc.com/connect"
	"go.uber.org/goleak"

	"github.com/fencelock/fencelock/apps/payout-executor/internal/model"
	v1 "github.com/fencelock/fencelock/contracts/api/fencelock/payments/v1"
	"github.com/fencelock/fencelock/contracts/api/fencelock/payments/v1/paymentsv1connect"
)

// The tests here are those of the payment resource's own store about the same rules, so that the model does not grow kinder than what it
// stands for.

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	claimed   = v1.PayoutState_PAYOUT_STATE_CLAIMED
	submitted = v1.PayoutState_PAYOUT_STATE_RAIL_SUBMITTED
	ambiguous = v1.PayoutState_PAYOUT_STATE_RAIL_AMBIGUOUS
	acked     = v1.PayoutState_PAYOUT_STATE_RAIL_ACKED
	posted    = v1.PayoutState_PAYOUT_STATE_POSTED
	failed    = v1.PayoutState_PAYOUT_STATE_FAILED
	abandoned = v1.PayoutState_PAYOUT_STATE_ABANDONED
)

// world is a model with the account "a" of 1000, and its payouts "p" of 100 and "q" of 50.
type world struct {
	*model.World
	paymentsv1connect.PaymentServiceClient

	t *testing.T
}

func open(t *testing.T) *world {
	t.Helper()
	w := &world{World: model.New(), t: t}
	w.Open("a", 1000)
	w.Ask("p", "a", 100, "bob")
	w.Ask("q", "a", 50, "bob")
	server := httptest.NewServer(w.Handler())
	t.Cleanup(server.Close)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	w.PaymentServiceClient = paymentsv1connect.NewPaymentServiceClient(&http.Client{Transport: transport}, server.URL)
	return w
}

func under[M any](token int64, message *M) *connect.Request[M] {
	req := connect.NewRequest(message)
	req.Header().Set("Fencelock-Token", strconv.FormatInt(token, 10))
	return req
}

func (w *world) claim(payout string, token int64) {
	w.t.Helper()
	if _, err := w.Claim(w.t.Context(), under(token, &v1.ClaimRequest{Id: payout, Account: "a"})); err != nil {
		w.t.Fatalf("claim %s by %d: %v", payout, token, err)
	}
}

func (w *world) step(payout string, token int64, from, to v1.PayoutState, reference string) error {
	_, err := w.Advance(w.t.Context(), under(token, &v1.AdvanceRequest{
		Id: payout, Account: "a", From: from, To: to, RailReference: reference,
	}))
	return err
}

func (w *world) advance(payout string, token int64, from, to v1.PayoutState) {
	w.t.Helper()
	if err := w.step(payout, token, from, to, "t-1"); err != nil {
		w.t.Fatalf("advance %s by %d to %s: %v", payout, token, to, err)
	}
}

func (w *world) acked(payout string, token int64) {
	w.t.Helper()
	w.claim(payout, token)
	w.advance(payout, token, claimed, submitted)
	w.advance(payout, token, submitted, acked)
}

func (w *world) post(payout string, token, balance int64) error {
	_, err := w.Post(w.t.Context(), under(token, &v1.PostRequest{Id: payout, Account: "a", BalanceAfter: balance}))
	return err
}

// refused checks that err is the refusal.
func refused(t *testing.T, what string, err error, want v1.ErrorCode) {
	t.Helper()
	if wire, ok := errors.AsType[*connect.Error](err); ok {
		for _, d := range wire.Details() {
			value, bad := d.Value()
			if e, ok := value.(*v1.ErrorDetail); bad == nil && ok && e.GetCode() == want {
				return
			}
		}
	}
	t.Errorf("%s: got %v, want %s", what, err, want)
}

func TestMoneyThatMayHaveLeftIsNotSpentAgain(t *testing.T) {
	t.Parallel()
	w := open(t)
	w.Ask("r", "a", 901, "bob")
	w.claim("p", 33)
	w.advance("p", 33, claimed, submitted)
	const reserved = v1.ErrorCode_ERROR_CODE_FUNDS_RESERVED
	w.claim("r", 34)
	refused(t, "the rail may have been called", w.step("r", 34, claimed, submitted, ""), reserved)
	w.claim("p", 35)
	w.advance("p", 35, submitted, ambiguous)
	w.claim("r", 36)
	refused(t, "nobody knows", w.step("r", 36, claimed, submitted, ""), reserved)
	w.claim("p", 37)
	w.advance("p", 37, ambiguous, acked)
	w.claim("r", 38)
	refused(t, "the ledger does not show it yet", w.step("r", 38, claimed, submitted, ""), reserved)
	w.claim("q", 39)
	w.advance("q", 39, claimed, submitted) // there is enough for this one
	w.advance("q", 39, submitted, failed)
	w.claim("p", 40)
	if err := w.post("p", 40, 900); err != nil {
		t.Fatal(err)
	}
	w.claim("r", 41)
	refused(t, "the balance is too low", w.step("r", 41, claimed, submitted, ""), v1.ErrorCode_ERROR_CODE_INSUFFICIENT_FUNDS)
	if got := w.State("r"); got != claimed {
		t.Errorf("it is %s", got)
	}
	w.advance("r", 41, claimed, abandoned)
	w.Ask("s", "a", 900, "bob")
	w.claim("s", 42)
	w.advance("s", 42, claimed, submitted)
	w.advance("s", 42, claimed, submitted) // the answer was lost
}

func TestMoneyThatHasNotLeftIsThereAgain(t *testing.T) {
	t.Parallel()
	w := open(t)
	w.Ask("r", "a", 901, "bob")
	w.claim("p", 33)
	w.advance("p", 33, claimed, submitted)
	w.claim("p", 35)
	w.advance("p", 35, submitted, failed)
	w.claim("r", 36)
	w.advance("r", 36, claimed, submitted)
}

func TestABalanceIsTheOneBeforeLessTheAmount(t *testing.T) {
	t.Parallel()
	w := open(t)
	w.Send("p", 33, v1.SubmissionOutcome_SUBMISSION_OUTCOME_ACKED, true)
	w.acked("p", 33)
	for _, balance := range []int64{899, 901, 1000, 1100, 0, -1} {
		refused(t, fmt.Sprint(balance), w.post("p", 33, balance), v1.ErrorCode_ERROR_CODE_WRONG_BALANCE)
	}
	if got := w.State("p"); got != acked || w.Balance("a") != 1000 {
		t.Errorf("it is %s, and the balance %d", got, w.Balance("a"))
	}
	for range 2 { // the answer was lost
		if err := w.post("p", 33, 900); err != nil {
			t.Error(err)
		}
	}
	refused(t, "again, with another balance", w.post("p", 33, 800), v1.ErrorCode_ERROR_CODE_DIFFERENT)
	if found := w.Faults(); len(found) > 0 {
		t.Error(found)
	}
}

func TestAnOverdrawnAccountIsSettled(t *testing.T) {
	t.Parallel()
	w := open(t)
	w.Ask("r", "a", 950, "bob")
	w.Send("p", 33, v1.SubmissionOutcome_SUBMISSION_OUTCOME_ACKED, true)
	w.Put("p", acked, 33, "t-1")
	w.Send("r", 34, v1.SubmissionOutcome_SUBMISSION_OUTCOME_ACKED, true)
	w.Put("r", acked, 34, "t-1")
	w.claim("p", 35)
	if err := w.post("p", 35, 900); err != nil {
		t.Fatal(err)
	}
	w.claim("r", 36)
	if err := w.post("r", 36, -50); err != nil {
		t.Fatal(err)
	}
	if b := w.Balance("a"); b != -50 || w.State("r") != posted {
		t.Errorf("the balance is %d, the payout %s", b, w.State("r"))
	}
	if found := w.Faults(); len(found) > 0 {
		t.Error(found)
	}
}

// TestAGrantWritesWhatItHasClaimedOnly: an earlier holder left q; the grant of p may not go on with it.
func TestAGrantWritesWhatItHasClaimedOnly(t *testing.T) {
	t.Parallel()
	const wrong = v1.ErrorCode_ERROR_CODE_WRONG_STATE
	w := open(t)
	w.claim("q", 32)
	w.claim("p", 33)
	refused(t, "advance", w.step("q", 33, claimed, submitted, ""), wrong)
	w.acked("q", 34)
	w.claim("p", 35)
	refused(t, "post", w.post("q", 35, 950), wrong)
	refused(t, "too early", w.post("p", 35, 900), wrong)
	if got := w.State("q"); got != acked {
		t.Errorf("it is %s", got)
	}
}

func TestAStepThatWasMadeBeforeWithOtherValues(t *testing.T) {
	t.Parallel()
	w := open(t)
	w.acked("p", 33)
	refused(t, "another reference", w.step("p", 33, submitted, acked, "t-2"), v1.ErrorCode_ERROR_CODE_DIFFERENT)
	w.advance("p", 33, submitted, acked)
}

// TestTheLedgerInPages: put together they are the whole, whatever their size.
func TestTheLedgerInPages(t *testing.T) {
	t.Parallel()
	w := open(t)
	w.Open("z", 5) // "rail" stands between them
	balance := int64(1000)
	for n, id := range []string{"x", "B", "n"} {
		w.Ask(id, "a", 1, "bob")
		w.acked(id, int64(10+n))
		balance--
		if err := w.post(id, int64(10+n), balance); err != nil {
			t.Fatal(err)
		}
	}
	read := func(account string, size int32) (all string, pages int) {
		for token := ""; token != "" || pages == 0; pages++ {
			got, err := w.GetLedger(t.Context(), connect.NewRequest(&v1.GetLedgerRequest{Account: account, PageSize: size, PageToken: token}))
			if err != nil {
				t.Fatal(err)
			}
			if n := len(got.Msg.GetAccounts()) + len(got.Msg.GetGroups()); n > int(size) {
				t.Fatalf("a page of %d has %d", size, n)
			}
			for _, a := range got.Msg.GetAccounts() {
				all += fmt.Sprintln(a.GetId(), a.GetBalance(), a.GetOpening(), a.GetEntries())
			}
			for _, g := range got.Msg.GetGroups() {
				all += fmt.Sprintln(g.GetPayout(), g.GetEntries(), g.GetSum(), g.GetPaid())
			}
			token = got.Msg.GetNextPageToken()
		}
		return all, pages
	}
	const groups = "B 2 0 1\nn 2 0 1\nx 2 0 1\n"
	for account, want := range map[string]string{
		"": "a 997 1000 -3\nrail 3 0 3\nz 5 5 0\n" + groups, "a": "a 997 1000 -3\n" + groups, "z": "z 5 5 0\n", "rail": "rail 3 0 3\n" + groups,
	} {
		for size := int32(1); size < 9; size++ {
			got, pages := read(account, size)
			if got != want || size == 1 && account == "" && pages < 6 {
				t.Errorf("%q in %d pages of %d:\n%s, want\n%s", account, pages, size, got, want)
			}
		}
	}
}
