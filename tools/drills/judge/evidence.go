package judge

import (
	"time"

	"github.com/fencelock/fencelock/core/lock"
)

// Rail is the account that stands for money which has left.
const Rail = "rail"

// State is where a payout stands, as the resource names it.
type State string

// The states. Posted, Failed and Abandoned are terminal.
const (
	Pending   State = "PENDING"
	Claimed   State = "CLAIMED"
	Submitted State = "RAIL_SUBMITTED"
	Acked     State = "RAIL_ACKED"
	Posted    State = "POSTED"
	Failed    State = "FAILED"
	Ambiguous State = "RAIL_AMBIGUOUS"
	Abandoned State = "ABANDONED"
)

// Terminal reports whether nothing may follow the state.
func (s State) Terminal() bool { return s == Posted || s == Failed || s == Abandoned }

// sent reports whether the rail may have a transfer that the ledger does not show yet.
func (s State) sent() bool { return s == Submitted || s == Ambiguous || s == Acked }

// Evidence is what the parts of the system wrote down. Each slice is in its writer's own order.
type Evidence struct {
	// Payouts and Events are rows of the resource; Accounts and Groups are its ledger, at one moment.
	Payouts  []Payout
	Events   []Event
	Accounts []Account
	Groups   []Group
	// Submissions are the table of the proxy.
	Submissions []Submission
	// Transfers are what the rail itself logged.
	Transfers []Transfer
	// Grants and Releases are log lines of the lock servers.
	Grants   []Grant
	Releases []Release
	// Uses are log lines of the executors.
	Uses []Use
}

// Account compares a balance with its entries. The account [Rail] is one of them.
type Account struct {
	ID string
	// Balance and Opening are in minor units, as is Entries, the sum of all entries of the account.
	Balance, Opening, Entries int64
}

// Group is the ledger's entries of one payout.
type Group struct {
	Payout string
	// Entries is how many there are.
	Entries int
	// Sum is what they add up to, and Paid what the account [Rail] got, in minor units.
	Sum, Paid int64
}

// Payout is a row of the resource.
type Payout struct {
	ID, Account string
	// Amount is in minor units.
	Amount int64
	State  State
}

// Event is one write of a payout's state, as the resource's history has it.
type Event struct {
	Payout, Account string
	// From is empty where the payout was made. From and To are equal where a later grant took it over.
	From, To State
	// Token under which it was written; 0 where the payout was made.
	Token lock.Token
	// Fence is the account's fence just before.
	Fence lock.Token
}

// Submission is a row of the proxy: one payout that it sent, or was about to send.
type Submission struct {
	Payout, Account string
	Token           lock.Token
}

// Transfer is a request that the rail has executed or declined.
type Transfer struct {
	Payout string
	// Amount is in minor units.
	Amount int64
	// Taken: it was executed, not declined.
	Taken bool
}

// Grant is a line lock_granted.
type Grant struct {
	Key   string
	Token lock.Token
	// Session is the hash that the line shows.
	Session string
	// Server is whose line it is: only lines of one server have an order.
	Server string
	// At is the line's time, which is after the grant.
	At time.Time
}

// Release is a line lock_released: the grant lived until it.
type Release struct {
	Key     string
	Token   lock.Token
	Session string
}

// Use is a line of an executor that holds a grant and has not asked for its release yet.
type Use struct {
	Key   string
	Token lock.Token
	At    time.Time
}

// KeyOf is the lock of an account.
func KeyOf(account string) string { return "payout:" + account }
