package account

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/fencelock/fencelock/apps/payments/internal/refusal"
)

// The statements, each with a schema before every name, since the database's settings can lead a bare one elsewhere.
const (
	insertAccount = `INSERT INTO payment.account (id, balance, opening) VALUES ($1, $2, $2) ON CONFLICT (id) DO NOTHING`

	insertPayout = `
		WITH made AS (
			INSERT INTO payment.payout (id, account, amount, destination) VALUES ($1, $2, $3, $4)
			ON CONFLICT (id) DO NOTHING RETURNING id, account, state)
		INSERT INTO payment.payout_event (payout, account, to_state, token, fence)
		SELECT made.id, made.account, made.state, 0, a.fence FROM made JOIN payment.account a ON a.id = made.account`

	accountColumns = `id, balance, opening, fence`
	selectAccount  = `SELECT ` + accountColumns + ` FROM payment.account WHERE id = $1`
	// lockAccount holds the row against all writers, and lets payouts of the account be created meanwhile.
	lockAccount = selectAccount + ` FOR NO KEY UPDATE`
	// raiseFence is for fencing off, where the fence is noted all the same, so that it is right when fencing is on again.
	raiseFence   = `UPDATE payment.account SET fence = greatest(fence, $2) WHERE id = $1`
	writeBalance = `UPDATE payment.account SET balance = $2 WHERE id = $1`

	payoutColumns = `number, id, account, amount, destination, state, token, claim, rail_reference, reason, created_at, changed_at`
	selectPayout  = `SELECT ` + payoutColumns + ` FROM payment.payout WHERE id = $1`
	listPayouts   = `SELECT ` + payoutColumns + ` FROM payment.payout
		WHERE number > $1 AND (cardinality($2::text[]) = 0 OR state = ANY ($2)) ORDER BY number LIMIT $3`
	sumPromised = `SELECT coalesce(sum(amount), 0)::bigint FROM payment.payout WHERE account = $1 AND id <> $2 AND state = ANY ($3)`

	// writeState writes a payout and the event of that.
	writeState = `
		WITH event AS (
			INSERT INTO payment.payout_event (payout, account, from_state, to_state, token, fence)
			VALUES ($1, $2, $3, $4, $5, $6))
		UPDATE payment.payout SET state = $4, token = $7, claim = $8, rail_reference = $9, reason = $10,
			changed_at = CASE WHEN $3 = $4 THEN changed_at ELSE clock_timestamp() END
		WHERE id = $1 RETURNING ` + payoutColumns
	writeEntries = `INSERT INTO payment.ledger_entry (payout, account, amount, token)
		VALUES ($1, $2, -$3::bigint, $4), ($1, '` + Rail + `', $3, $4)`

	sumAccounts = `
		SELECT a.id, coalesce(a.balance, e.entries), a.opening, e.entries
		FROM (
			SELECT id, balance, opening
			FROM (SELECT id, balance, opening FROM payment.account UNION ALL SELECT '` + Rail + `', NULL, 0) every
			WHERE ($1 = '' OR id = $1) AND id > $2 ORDER BY id LIMIT $3) a
		CROSS JOIN LATERAL (SELECT coalesce(sum(amount), 0)::bigint AS entries FROM payment.ledger_entry WHERE account = a.id) e
		ORDER BY a.id`
	// sumGroups of all, and of an account: in one statement the one would be planned for the other, and read all entries.
	sumGroups    = groupsOf + `$1 = ''` + groupsEnd
	sumGroupsFor = groupsOf + `payout IN (
			SELECT DISTINCT payout FROM payment.ledger_entry WHERE account = $1 AND payout > $2 ORDER BY payout LIMIT $3)` + groupsEnd
	groupsOf = `
		SELECT payout, count(*), sum(amount)::bigint, coalesce(sum(amount) FILTER (WHERE account = '` + Rail + `'), 0)::bigint
		FROM payment.ledger_entry
		WHERE payout > $2 AND `
	groupsEnd  = ` GROUP BY payout ORDER BY payout LIMIT $3`
	listEvents = `SELECT number, payout, account, coalesce(from_state, ''), to_state, token, fence, at
		FROM payment.payout_event WHERE number > $1 ORDER BY number LIMIT $2`
)

func scanAccount(row pgx.CollectableRow) (Account, error) {
	var a Account
	err := row.Scan(&a.ID, &a.Balance, &a.Opening, &a.Fence)
	return a, err //nolint:wrapcheck // Within translates it
}

func scanPayout(row pgx.CollectableRow) (Payout, error) {
	var p Payout
	err := row.Scan(&p.Number, &p.ID, &p.Account, &p.Amount, &p.Destination, &p.State, &p.Token, &p.Claim,
		&p.RailReference, &p.Reason, &p.CreatedAt, &p.ChangedAt)
	return p, err //nolint:wrapcheck // Within translates it
}

func scanEvent(row pgx.CollectableRow) (Event, error) {
	var e Event
	err := row.Scan(&e.Number, &e.Payout, &e.Account, &e.From, &e.To, &e.Token, &e.Fence, &e.At)
	return e, err //nolint:wrapcheck // Within translates it
}

func accountOf(ctx context.Context, tx pgx.Tx, id string) (Account, error) {
	return one(ctx, tx, scanAccount, "there is no such account", selectAccount, id)
}

func payoutOf(ctx context.Context, tx pgx.Tx, id string) (Payout, error) {
	return one(ctx, tx, scanPayout, "there is no such payout", selectPayout, id)
}

// one reads one row, or refuses with what is missing.
func one[T any](
	ctx context.Context, tx pgx.Tx, scan pgx.RowToFunc[T], missing, statement string, args ...any,
) (row T, err error) {
	rows, err := tx.Query(ctx, statement, args...)
	if err != nil {
		return row, err //nolint:wrapcheck // Within translates it
	}
	row, err = pgx.CollectExactlyOneRow(rows, scan)
	if errors.Is(err, pgx.ErrNoRows) {
		err = refusal.New(refusal.NotFound, missing)
	}
	return row, err
}

// many reads all rows.
func many[T any](ctx context.Context, tx pgx.Tx, scan pgx.RowToFunc[T], statement string, args ...any) ([]T, error) {
	rows, err := tx.Query(ctx, statement, args...)
	if err != nil {
		return nil, err //nolint:wrapcheck // Within translates it
	}
	return pgx.CollectRows(rows, scan) //nolint:wrapcheck // Within translates it
}
