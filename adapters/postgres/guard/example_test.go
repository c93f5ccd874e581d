package guard_test

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencelock/fencelock/adapters/postgres/guard"
	"github.com/fencelock/fencelock/core/fence"
	"github.com/fencelock/fencelock/core/lock"
)

// The first write of a grant raises the mark in the row that it writes to; later ones find it equal.
func ExampleNewColumn() { //nolint:testableexamples // needs a database
	accounts := guard.NewColumn(guard.Column{Table: pgx.Identifier{"account"}, ID: "id", Mark: "fence"})

	withdraw := func(ctx context.Context, pool *pgxpool.Pool, account string, amount int64, token lock.Token) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if err := fence.New(accounts.In(tx)).Admit(ctx, account, token); err != nil {
				return err // fenced out: someone newer was here
			}
			_, err := tx.Exec(ctx, "UPDATE account SET balance = balance - $2 WHERE id = $1", account, amount)
			return err
		})
	}
	_ = withdraw
}

// What is not a row of the caller's gets a mark in a table of its own.
func ExampleNewTable() { //nolint:testableexamples // needs a database
	table := pgx.Identifier{"fence_mark"}
	marks := guard.NewTable(table)

	migrate := func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, guard.CreateTable(table))
		return err
	}
	publish := func(ctx context.Context, tx pgx.Tx, report string, token lock.Token) error {
		return fence.New(marks.In(tx)).AdmitBy(ctx, fence.NotBelow, "report:"+report, token)
	}
	_, _ = migrate, publish
}
