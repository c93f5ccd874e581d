package model

import (
	"net/http"
	"slices"
	"sync"

	v1 "github.com/fencelock/fencelock/contracts/api/fencelock/payments/v1"
	"github.com/fencelock/fencelock/contracts/api/fencelock/payments/v1/paymentsv1connect"
)

// Destinations with a meaning to the rail.
const (
	// Decline is declined.
	Decline = "decline"
	// LostReply is executed, and its answer is lost.
	LostReply = "lost-reply"
	// LostRequest is not executed, and no answer comes.
	LostRequest = "lost-request"
)

// World is everything that the executor talks to but the lock service. It is safe for concurrent use.
type World struct {
	mu sync.Mutex
	// unfenced: the services trust their callers.
	unfenced bool
	// silent: the rail's lookup knows nothing.
	silent bool
	// down are the services that answer nothing.
	down    map[Service]bool
	weather func(Call) Passage

	accounts    map[string]*account
	payouts     []*v1.Payout
	claims      map[string]int64 // token of a payout's last claim
	entries     []Entry
	events      []Event
	marks       map[string]int64
	submissions []*v1.Submission
	transfers   []Transfer
	calls       []Call
	refused     int
}

type account struct {
	id                      string
	balance, opening, fence int64
}

// Entry is one of the ledger's; a posting makes two.
type Entry struct {
	Payout, Account string
	Amount          int64
}

// Event is one writing of a payout's state.
type Event struct {
	Payout, Account string
	From, To        v1.PayoutState
	Token, Fence    int64
}

// Transfer is what the rail has executed.
type Transfer struct {
	Payout, Destination string
	Amount              int64
}

// New returns a world without accounts.
func New() *World {
	return &World{
		accounts: map[string]*account{}, claims: map[string]int64{}, marks: map[string]int64{}, down: map[Service]bool{},
		weather: func(Call) Passage { return Passage{} },
	}
}

// Handler serves both services.
func (w *World) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle(paymentsv1connect.NewPaymentServiceHandler(&payments{w: w}))
	mux.Handle(paymentsv1connect.NewRailServiceHandler(&rail{w: w}))
	mux.HandleFunc("GET /transfers", w.listTransfers)
	return mux
}

// Open makes an account.
func (w *World) Open(id string, balance int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.accounts[id] = &account{id: id, balance: balance, opening: balance}
}

// Ask makes a payout.
func (w *World) Ask(id, account string, amount int64, destination string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := stamp()
	w.payouts = append(w.payouts, &v1.Payout{
		Id: id, Account: account, Amount: amount, Destination: destination,
		State: v1.PayoutState_PAYOUT_STATE_PENDING, CreatedAt: now, ChangedAt: now,
	})
	w.events = append(w.events, Event{Payout: id, Account: account, To: v1.PayoutState_PAYOUT_STATE_PENDING})
}

// Put writes a payout's state as if the holder of a token had left it so; the account's fence follows. It is for tests that start there.
func (w *World) Put(id string, state v1.PayoutState, token int64, reference string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.payout(id)
	a := w.accounts[p.GetAccount()]
	w.event(p, state, token, a.fence)
	a.fence = max(a.fence, token)
	w.claims[id] = token
	p.State, p.Token, p.RailReference = state, token, reference
}

// Send makes a submission as if the holder of a token had made it, and has the rail execute it if its outcome is not known or good.
func (w *World) Send(id string, token int64, outcome v1.SubmissionOutcome, executed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.payout(id)
	w.marks[p.GetAccount()] = max(w.marks[p.GetAccount()], token)
	s := &v1.Submission{
		Payout: id, Account: p.GetAccount(), Amount: p.GetAmount(), Destination: p.GetDestination(), Token: token,
		Outcome: outcome, SubmittedAt: stamp(),
	}
	if outcome == v1.SubmissionOutcome_SUBMISSION_OUTCOME_ACKED {
		s.RailReference = "tr-" + id
	}
	w.submissions = append(w.submissions, s)
	if executed {
		w.transfers = append(w.transfers, Transfer{Payout: id, Destination: p.GetDestination(), Amount: p.GetAmount()})
	}
}

// Settle posts a payout as the holder of a token would.
func (w *World) Settle(id string, token int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.payout(id)
	a := w.accounts[p.GetAccount()]
	_ = w.post(p, a, token, a.balance-p.GetAmount())
}

// Unfence makes the services trust their callers, as their switches for the experiment do.
func (w *World) Unfence() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unfenced = true
}

// Silence makes the rail's lookup know nothing, or again what there is.
func (w *World) Silence(on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.silent = on
}

// Tamper changes the books behind everybody's back.
func (w *World) Tamper(change func(b *Books)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	b := &Books{Payouts: w.payouts, Submissions: w.submissions, Transfers: w.transfers, Entries: w.entries}
	for _, a := range w.accounts {
		b.Balances = append(b.Balances, &a.balance)
	}
	change(b)
	w.payouts, w.submissions, w.transfers, w.entries = b.Payouts, b.Submissions, b.Transfers, b.Entries
}

// DropEntries empties the ledger, and puts the balances back.
func (w *World) DropEntries() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.entries = nil
	for _, a := range w.accounts {
		a.balance = a.opening
	}
}

// Books is what [World.Tamper] may change.
type Books struct {
	Payouts     []*v1.Payout
	Submissions []*v1.Submission
	Transfers   []Transfer
	Entries     []Entry
	Balances    []*int64
}

// State of a payout.
func (w *World) State(id string) v1.PayoutState {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.payout(id).GetState()
}

// Balance of an account.
func (w *World) Balance(id string) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.accounts[id].balance
}

// Transfers are what the rail has executed.
func (w *World) Transfers() []Transfer {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.transfers)
}

// Refused is how many calls the fences have refused.
func (w *World) Refused() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.refused
}

// Backlog is how many payouts are neither over nor ambiguous.
func (w *World) Backlog() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, p := range w.payouts {
		if !terminal(p.GetState()) && p.GetState() != v1.PayoutState_PAYOUT_STATE_RAIL_AMBIGUOUS {
			n++
		}
	}
	return n
}

// payout finds a payout, or returns nil. The caller holds mu, as for all methods below.
func (w *World) payout(id string) *v1.Payout {
	for _, p := range w.payouts {
		if p.GetId() == id {
			return p
		}
	}
	return nil
}

func (w *World) submission(id string) *v1.Submission {
	for _, s := range w.submissions {
		if s.GetPayout() == id {
			return s
		}
	}
	return nil
}

func (w *World) transferred(id string) int {
	n := 0
	for _, t := range w.transfers {
		if t.Payout == id {
			n++
		}
	}
	return n
}

func (w *World) event(p *v1.Payout, to v1.PayoutState, token, fence int64) {
	w.events = append(w.events, Event{
		Payout: p.GetId(), Account: p.GetAccount(), From: p.GetState(), To: to, Token: token, Fence: fence,
	})
}

func terminal(s v1.PayoutState) bool {
	switch s {
	case v1.PayoutState_PAYOUT_STATE_POSTED, v1.PayoutState_PAYOUT_STATE_FAILED, v1.PayoutState_PAYOUT_STATE_ABANDONED:
		return true
	default:
		return false
	}
}
