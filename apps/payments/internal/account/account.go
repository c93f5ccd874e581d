package account

import (
	"time"

	"github.com/fencelock/fencelock/core/lock"
)

// Rail is the account in the ledger that stands for money that has left. No account of somebody has this name.
const Rail = "rail"

// Account is money of somebody.
type Account struct {
	ID string
	// Balance and Opening are in minor units.
	Balance, Opening int64
	// Fence is the highest token that has claimed; 0 before the first.
	Fence lock.Token
}

// Payout is money on its way out of an account.
type Payout struct {
	// Number orders payouts by when they were asked for.
	Number      int64
	ID, Account string
	// Amount is in minor units.
	Amount      int64
	Destination string
	State       State
	// Token is the one under which the state was written; 0 for [Pending].
	Token lock.Token
	// Claim is the token of the last claim; 0 before the first.
	Claim         lock.Token
	RailReference string
	Reason        string
	CreatedAt     time.Time
	ChangedAt     time.Time
}

// View is one picture of a payout and its account, at one moment.
type View struct {
	Payout  Payout
	Account Account
}

// Event is one writing of a payout's state.
type Event struct {
	Number          int64
	Payout, Account string
	// From is empty where the payout was created. It equals To where one that an earlier holder left behind was claimed.
	From, To State
	Token    lock.Token
	// Fence is the account's just before the write.
	Fence lock.Token
	At    time.Time
}

// Ledger is a page of what the ledger says.
type Ledger struct {
	Accounts []Sum
	Groups   []Group
}

// Sum compares the balance of an account with its entries; in a sound ledger it is Opening plus Entries.
type Sum struct {
	Account                   string
	Balance, Opening, Entries int64
}

// Group is the entries of one payout.
type Group struct {
	Payout string
	// Entries is how many there are: two in a sound ledger.
	Entries int
	// Sum of all of them: 0 in a sound ledger.
	Sum int64
	// Paid is what [Rail] got: the payout's amount in a sound ledger.
	Paid int64
}
