package remote

import (
	"context"
	"net/http"

	"connectrpc.com/connect"

	"github.com/fencelock/fencelock/apps/payout-executor/internal/payout"
	v1 "github.com/fencelock/fencelock/contracts/api/fencelock/payments/v1"
	"github.com/fencelock/fencelock/contracts/api/fencelock/payments/v1/paymentsv1connect"
)

// Payments is the payment resource. It implements [payout.Payments] and lists what there is.
type Payments struct {
	rpc paymentsv1connect.PaymentServiceClient
}

// NewPayments returns the payment resource at a URL.
func NewPayments(c *http.Client, url string) *Payments {
	return &Payments{rpc: paymentsv1connect.NewPaymentServiceClient(c, url, options()...)}
}

// Get implements [payout.Payments].
func (s *Payments) Get(ctx context.Context, id string) (payout.Picture, error) {
	resp, err := s.rpc.GetPayout(ctx, connect.NewRequest(&v1.GetPayoutRequest{Id: id}))
	if err != nil {
		return payout.Picture{}, translate(err)
	}
	return pictureOf(resp.Msg.GetPayout(), resp.Msg.GetAccount()), nil
}

// Claim implements [payout.Payments].
func (s *Payments) Claim(ctx context.Context, token payout.Token, ref payout.Ref) (payout.Picture, error) {
	resp, err := s.rpc.Claim(ctx, request(token, &v1.ClaimRequest{Id: ref.ID, Account: ref.Account}))
	if err != nil {
		return payout.Picture{}, translate(err)
	}
	return pictureOf(resp.Msg.GetPayout(), resp.Msg.GetAccount()), nil
}

// Advance implements [payout.Payments].
func (s *Payments) Advance(ctx context.Context, token payout.Token, step payout.Step) (payout.Payout, error) {
	resp, err := s.rpc.Advance(ctx, request(token, &v1.AdvanceRequest{
		Id: step.ID, Account: step.Account, From: wireState(step.From), To: wireState(step.To),
		RailReference: step.Reference, Reason: step.Reason,
	}))
	if err != nil {
		return payout.Payout{}, translate(err)
	}
	return payoutOf(resp.Msg.GetPayout()), nil
}

// Post implements [payout.Payments].
func (s *Payments) Post(ctx context.Context, token payout.Token, ref payout.Ref, balanceAfter int64) (payout.Picture, error) {
	resp, err := s.rpc.Post(ctx, request(token, &v1.PostRequest{Id: ref.ID, Account: ref.Account, BalanceAfter: balanceAfter}))
	if err != nil {
		return payout.Picture{}, translate(err)
	}
	return pictureOf(resp.Msg.GetPayout(), resp.Msg.GetAccount()), nil
}

// List returns a page of the payouts in some states, oldest first; none lists all. next is empty on the last page. Errors are those of
// [payout.Payments].
func (s *Payments) List(
	ctx context.Context, states []payout.State, size int, token string,
) (found []payout.Payout, next string, err error) {
	req := &v1.ListPayoutsRequest{PageSize: int32(size), PageToken: token} //nolint:gosec // at most 1000
	for _, state := range states {
		req.States = append(req.States, wireState(state))
	}
	resp, err := s.rpc.ListPayouts(ctx, connect.NewRequest(req))
	if err != nil {
		return nil, "", translate(err)
	}
	for _, p := range resp.Msg.GetPayouts() {
		found = append(found, payoutOf(p))
	}
	return found, resp.Msg.GetNextPageToken(), nil
}

// ledgerPage is how many accounts and payouts of the ledger are asked for at once.
const ledgerPage = 1000

// Ledger is what the ledger says. Each account is of one moment, and so is each group; all of them are not.
type Ledger struct {
	Accounts []LedgerAccount
	Groups   []LedgerGroup
}

// LedgerAccount compares a balance with its entries, in minor units.
type LedgerAccount struct {
	ID                        string
	Balance, Opening, Entries int64
}

// LedgerGroup is the entries of one payout, in minor units.
type LedgerGroup struct {
	Payout    string
	Entries   int
	Sum, Paid int64
}

// Ledger reads the whole ledger, page by page: what was posted before is in it. Errors are those of [payout.Payments].
func (s *Payments) Ledger(ctx context.Context) (Ledger, error) {
	var ledger Ledger
	for token := ""; ; {
		resp, err := s.rpc.GetLedger(ctx, connect.NewRequest(&v1.GetLedgerRequest{PageSize: ledgerPage, PageToken: token}))
		if err != nil {
			return Ledger{}, translate(err)
		}
		for _, a := range resp.Msg.GetAccounts() {
			ledger.Accounts = append(ledger.Accounts, LedgerAccount{
				ID: a.GetId(), Balance: a.GetBalance(), Opening: a.GetOpening(), Entries: a.GetEntries(),
			})
		}
		for _, g := range resp.Msg.GetGroups() {
			ledger.Groups = append(ledger.Groups, LedgerGroup{
				Payout: g.GetPayout(), Entries: int(g.GetEntries()), Sum: g.GetSum(), Paid: g.GetPaid(),
			})
		}
		if token = resp.Msg.GetNextPageToken(); token == "" {
			return ledger, nil
		}
	}
}

// Ping asks whether the resource answers.
func (s *Payments) Ping(ctx context.Context) error {
	_, _, err := s.List(ctx, nil, 1, "")
	return err
}
