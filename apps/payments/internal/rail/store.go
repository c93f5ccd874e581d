package rail

import (
	"context"
	"embed"
	"errors"
	"io/fs"

	"github.com/jackc/pgx/v5"

	"github.com/fencelock/fencelock/adapters/postgres/guard"
	"github.com/fencelock/fencelock/apps/payments/internal/database"
	"github.com/fencelock/fencelock/apps/payments/internal/form"
	"github.com/fencelock/fencelock/apps/payments/internal/refusal"
	"github.com/fencelock/fencelock/core/fence"
	"github.com/fencelock/fencelock/core/lock"
)

//go:embed migrations/*.sql
var migrations embed.FS

// schema is where all tables are.
const schema = "rail"

// The statements, each with a schema before every name, since the database's settings can lead a bare one elsewhere.
const (
	columns = `number, payout, account, amount, destination, token, coalesce(outcome, ''), rail_reference, reason, submitted_at`

	// insertFenced inserts nothing where the payout was submitted before, also with fencing off.
	insertFenced = `INSERT INTO rail.submission (payout, account, amount, destination, token, fenced)
		SELECT $1, $2, $3::bigint, $4, $5::bigint, true WHERE NOT EXISTS (SELECT FROM rail.submission WHERE payout = $1)
		ON CONFLICT (payout) WHERE fenced DO NOTHING RETURNING ` + columns
	insertBare = `INSERT INTO rail.submission (payout, account, amount, destination, token, fenced)
		VALUES ($1, $2, $3, $4, $5, false) RETURNING ` + columns
	writeOutcome = `UPDATE rail.submission SET outcome = $2, rail_reference = $3, reason = $4, answered_at = clock_timestamp()
		WHERE number = $1 AND outcome IS NULL`
	selectNumber = `SELECT ` + columns + ` FROM rail.submission WHERE number = $1`
	// selectPayout prefers, of several that only fencing off can make, one that was acked.
	selectPayout = `SELECT ` + columns + ` FROM rail.submission WHERE payout = $1
		ORDER BY (outcome = 'ACKED') DESC NULLS LAST, number LIMIT 1`
	listAll = `SELECT ` + columns + ` FROM rail.submission WHERE number > $1 ORDER BY number LIMIT $2`
)

// Store keeps marks and submissions. It is safe for concurrent use, in any number of processes. Its errors are those of
// [database.Database.Within] beside those that its methods name.
type Store struct {
	db    *database.Database
	marks *guard.Marks
	// fencing says that marks and uniqueness hold.
	fencing bool
}

// NewStore returns a Store over a database that [Migrate] has seen. Whoever gives the database closes it.
func NewStore(db *database.Database, fencing bool) *Store {
	return &Store{db: db, marks: guard.NewTable(pgx.Identifier{schema, "mark"}), fencing: fencing}
}

// Migrate brings the tables of a Store to the newest version.
func Migrate(ctx context.Context, db *database.Database) error {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err //nolint:wrapcheck // the folder is embedded
	}
	return db.Migrate(ctx, schema, files)
}

// intend raises the mark and writes the intent. Where it returns no error, the caller, and nobody else, may send the order, once.
//
// Errors: [lock.ErrFencedOut] for a token below the mark; [refusal.Duplicate] for a payout that was submitted before.
func (s *Store) intend(ctx context.Context, token lock.Token, o Order) (sub Submission, err error) {
	insert := insertBare
	if s.fencing {
		insert = insertFenced
	}
	duplicate := false
	err = s.db.Within(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if err := s.raise(ctx, tx, o.Account, token); err != nil {
			return err
		}
		sub, err = one(ctx, tx, insert, o.Payout, o.Account, o.Amount, o.Destination, token)
		// The token was admitted, so the mark is to stay raised.
		duplicate = errors.Is(err, pgx.ErrNoRows)
		if duplicate {
			return nil
		}
		return err
	})
	if err == nil && duplicate {
		err = refusal.New(refusal.Duplicate, "the payout was submitted before")
	}
	return sub, err
}

// raise raises the mark of an account; with fencing off it does nothing.
func (s *Store) raise(ctx context.Context, tx pgx.Tx, account string, token lock.Token) error {
	if !s.fencing {
		return nil
	}
	return fence.New(s.marks.In(tx)).AdmitBy(ctx, fence.NotBelow, account, token)
}

// look raises the mark and reads the submission of a payout, in one transaction; there is false where there is none.
//
// Errors: [lock.ErrFencedOut] for a token below the mark; [refusal.Different] for a payout that was submitted for another account.
func (s *Store) look(ctx context.Context, token lock.Token, payout, account string) (sub Submission, there bool, err error) {
	err = s.db.Within(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if err := s.raise(ctx, tx, account, token); err != nil {
			return err
		}
		sub, err = one(ctx, tx, selectPayout, payout)
		there = err == nil
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return nil
		case err == nil && sub.Account != account:
			return refusal.New(refusal.Different, "the payout was submitted for another account")
		}
		return err
	})
	return sub, there && err == nil, err
}

// settle writes the outcome of a submission that has none, and returns it as it then is. With [Unknown] it only reads.
func (s *Store) settle(ctx context.Context, number int64, a answer) (sub Submission, err error) {
	err = s.db.Within(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if a.outcome != Unknown {
			if _, err := tx.Exec(ctx, writeOutcome, number, a.outcome, a.reference, a.reason); err != nil {
				return err //nolint:wrapcheck // Within translates it
			}
		}
		sub, err = one(ctx, tx, selectNumber, number)
		return err
	})
	return sub, err
}

// List lists a page of all submissions, oldest first. next is the token of the next page. A page that is not understood is
// [lock.ErrInvalid].
func (s *Store) List(ctx context.Context, size int32, token string) (page []Submission, next string, err error) {
	limit, after, err := form.Page(size, token)
	if err != nil {
		return nil, "", err
	}
	err = s.db.Picture(ctx, func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, listAll, after, limit)
		if err != nil {
			return err //nolint:wrapcheck // Picture translates it
		}
		page, err = pgx.CollectRows(rows, scan)
		return err //nolint:wrapcheck // Picture translates it
	})
	if len(page) > 0 {
		next = form.NextPage(limit, len(page), page[len(page)-1].Number)
	}
	return page, next, err
}

func scan(row pgx.CollectableRow) (Submission, error) {
	var s Submission
	err := row.Scan(&s.Number, &s.Payout, &s.Account, &s.Amount, &s.Destination, &s.Token, &s.Outcome, &s.RailReference,
		&s.Reason, &s.SubmittedAt)
	return s, err //nolint:wrapcheck // the transaction translates it
}

// one reads one row; none is pgx.ErrNoRows.
func one(ctx context.Context, tx pgx.Tx, statement string, args ...any) (Submission, error) {
	rows, err := tx.Query(ctx, statement, args...)
	if err != nil {
		return Submission{}, err //nolint:wrapcheck // the transaction translates it
	}
	return pgx.CollectExactlyOneRow(rows, scan) //nolint:wrapcheck // the transaction translates it
}
