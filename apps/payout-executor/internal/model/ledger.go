package model

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"

	"connectrpc.com/connect"

	v1 "github.com/fencelock/fencelock/contracts/api/fencelock/payments/v1"
)

// railAccount is the account that stands for money which has left.
const railAccount = "rail"

// GetLedger implements PaymentService.
func (s *payments) GetLedger(
	_ context.Context, req *connect.Request[v1.GetLedgerRequest],
) (*connect.Response[v1.GetLedgerResponse], error) {
	return carry(s.w, Call{Service: Payments, Method: "GetLedger"}, func() (*v1.GetLedgerResponse, error) {
		return ledgerPage(s.w.ledger(req.Msg.GetAccount()), req.Msg.GetPageSize(), req.Msg.GetPageToken()), nil
	})
}

// ledgerPage cuts a page out of all. Its token is the last thing on the page: accounts come before payouts.
func ledgerPage(all *v1.GetLedgerResponse, size int32, token string) *v1.GetLedgerResponse {
	if size == 0 {
		size = standardPage
	}
	found, last := &v1.GetLedgerResponse{}, ""
	full := func(key string) bool {
		if len(found.GetAccounts())+len(found.GetGroups()) == int(size) {
			found.NextPageToken = last
			return true
		}
		last = key
		return false
	}
	for _, a := range all.GetAccounts() {
		if key := "account/" + a.GetId(); key > token && !full(key) {
			found.Accounts = append(found.Accounts, a)
		}
	}
	for _, g := range all.GetGroups() {
		if key := "payout/" + g.GetPayout(); key > token && !full(key) {
			found.Groups = append(found.Groups, g)
		}
	}
	return found
}

func (w *World) ledger(only string) *v1.GetLedgerResponse {
	accounts := map[string]*v1.LedgerAccount{railAccount: {Id: railAccount}}
	for id, a := range w.accounts {
		accounts[id] = &v1.LedgerAccount{Id: id, Balance: a.balance, Opening: a.opening}
	}
	groups := map[string]*v1.LedgerGroup{}
	for _, e := range w.entries {
		accounts[e.Account].Entries += e.Amount
		g := groups[e.Payout]
		if g == nil {
			g = &v1.LedgerGroup{Payout: e.Payout}
			groups[e.Payout] = g
		}
		g.Entries++
		g.Sum += e.Amount
		if e.Account == railAccount {
			g.Paid += e.Amount
			accounts[railAccount].Balance += e.Amount
		}
	}
	answer := &v1.GetLedgerResponse{}
	for _, id := range slices.Sorted(maps.Keys(accounts)) {
		if only == "" || only == id {
			answer.Accounts = append(answer.Accounts, accounts[id])
		}
	}
	for _, id := range slices.Sorted(maps.Keys(groups)) {
		if only == "" || only == railAccount || w.payout(id).GetAccount() == only {
			answer.Groups = append(answer.Groups, groups[id])
		}
	}
	return answer
}

// listTransfers is the read-only listing of the rail.
func (w *World) listTransfers(rw http.ResponseWriter, _ *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	type transfer struct {
		ID          string `json:"id"`
		Reference   string `json:"reference"`
		Amount      int64  `json:"amount"`
		Destination string `json:"destination"`
		Status      string `json:"status"`
	}
	found := []transfer{}
	for _, t := range w.transfers {
		found = append(found, transfer{"tr-" + t.Payout, t.Payout, t.Amount, t.Destination, "executed"})
	}
	for _, s := range w.submissions {
		if s.GetOutcome() == v1.SubmissionOutcome_SUBMISSION_OUTCOME_REJECTED {
			found = append(found, transfer{"tr-" + s.GetPayout(), s.GetPayout(), s.GetAmount(), s.GetDestination(), "declined"})
		}
	}
	rw.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(rw).Encode(map[string][]transfer{"transfers": found}); err != nil {
		panic(http.ErrAbortHandler)
	}
}

// Faults says in one line each what is wrong with the world: it must be empty at every moment.
func (w *World) Faults() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var found []string
	for _, p := range w.payouts {
		if n := w.transferred(p.GetId()); n > 1 {
			found = append(found, p.GetId()+" was transferred more than once")
		}
		if p.GetState() == v1.PayoutState_PAYOUT_STATE_POSTED && w.transferred(p.GetId()) != 1 {
			found = append(found, p.GetId()+" is POSTED, and the rail has no such transfer")
		}
	}
	for _, a := range w.ledger("").GetAccounts() {
		if a.GetId() != railAccount && a.GetBalance() != a.GetOpening()+a.GetEntries() {
			found = append(found, a.GetId()+": balance is not opening and entries")
		}
	}
	for _, g := range w.ledger("").GetGroups() {
		p := w.payout(g.GetPayout())
		if g.GetEntries() != 2 || g.GetSum() != 0 || g.GetPaid() != p.GetAmount() || p.GetState() != v1.PayoutState_PAYOUT_STATE_POSTED {
			found = append(found, g.GetPayout()+": its entries in the ledger are wrong")
		}
	}
	return append(found, historyFaults(w.events)...)
}

// historyFaults looks at who wrote what: tokens of an account never go back, and terminal states are.
func historyFaults(events []Event) []string {
	var found []string
	highest, last := map[string]int64{}, map[string]v1.PayoutState{}
	for _, e := range events {
		if e.Token == 0 {
			continue
		}
		if e.Token < highest[e.Account] || e.Token < e.Fence {
			found = append(found, e.Payout+" was written under an old token")
		}
		highest[e.Account] = max(highest[e.Account], e.Token)
		if terminal(last[e.Payout]) {
			found = append(found, e.Payout+" was written after "+strings.TrimPrefix(last[e.Payout].String(), "PAYOUT_STATE_"))
		}
		last[e.Payout] = e.To
	}
	return found
}
