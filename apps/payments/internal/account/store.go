package account

import (
	"context"
	"embed"
	"io/fs"

	"github.com/jackc/pgx/v5"

	"github.com/fencelock/fencelock/adapters/postgres/guard"
	"github.com/fencelock/fencelock/apps/payments/internal/database"
	"github.com/fencelock/fencelock/core/turn"
)

//go:embed migrations/*.sql
var migrations embed.FS

// schema is where all tables are.
const schema = "payment"

// Store keeps accounts, payouts and the ledger. It is safe for concurrent use, in any number of processes.
//
// Its errors are of the closed set of core/lock or refusals; what is neither is a bug, or a database that somebody has changed. Any
// call can meet [lock.ErrContention], and may then be sent again.
type Store struct {
	db *database.Database
	// fences are the marks of the accounts, in their own rows.
	fences *guard.Marks
	// turns keep waiting for one account's row from using up the connections for all accounts.
	turns turn.Turns
	// fencing says that tokens and states are compared.
	fencing bool
}

// New returns a Store over a database that [Migrate] has seen. Whoever gives the database closes it.
func New(db *database.Database, fencing bool) *Store {
	return &Store{
		db:      db,
		fences:  guard.NewColumn(guard.Column{Table: pgx.Identifier{schema, "account"}, ID: "id", Mark: "fence"}),
		fencing: fencing,
	}
}

// Migrate brings the tables of a Store to the newest version.
func Migrate(ctx context.Context, db *database.Database) error {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err //nolint:wrapcheck // the folder is embedded
	}
	return db.Migrate(ctx, schema, files)
}
