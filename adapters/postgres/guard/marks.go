package guard

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencelock/fencelock/core/fence"
	"github.com/fencelock/fencelock/core/lock"
)

// Marks says where the marks of resources stand. It holds no connection and is safe for concurrent use.
type Marks struct {
	// advance is the statement of each rule; $1 is the resource and $2 the token. It changes one row, or none.
	advance map[fence.Rule]string
	// highest reads the mark.
	highest string
	// create: a resource without a row has the mark 0.
	create bool
}

// NewTable returns marks in a table of their own, which [CreateTable] makes. A resource needs no row beforehand; its
// name is the caller's choice.
func NewTable(table pgx.Identifier) *Marks {
	name := table.Sanitize()
	insert := "INSERT INTO " + name + " AS m (resource, mark) VALUES ($1::text, $2::bigint)" +
		" ON CONFLICT (resource) DO UPDATE SET mark = excluded.mark WHERE m.mark %s excluded.mark"
	return &Marks{
		advance: map[fence.Rule]string{
			fence.Above:    fmt.Sprintf(insert, "<"),
			fence.Equal:    "UPDATE " + name + " SET mark = $2::bigint WHERE resource = $1::text AND mark = $2::bigint",
			fence.NotBelow: fmt.Sprintf(insert, "<="),
		},
		highest: "SELECT mark FROM " + name + " WHERE resource = $1::text",
		create:  true,
	}
}

// CreateTable returns the statement that makes a table for [NewTable], for a migration of the caller's.
func CreateTable(table pgx.Identifier) string {
	return "CREATE TABLE " + table.Sanitize() + " (resource text PRIMARY KEY, mark bigint NOT NULL)"
}

// Column names a column with the marks of the caller's own rows, each of which is a resource. All but IDType is
// quoted, so it is taken literally.
type Column struct {
	Table pgx.Identifier
	// ID is the column with the names of the resources. It must be the primary key, or unique.
	ID string
	// IDType is its type as SQL writes it, such as bigint or uuid; empty means text. A constant, never input of others.
	IDType string
	// Mark is the column with the marks, a bigint. NULL is as good as 0: nothing has been admitted yet.
	Mark string
}

// NewColumn returns marks in a column. A resource without a row is [lock.ErrInvalid].
func NewColumn(c Column) *Marks {
	if c.IDType == "" {
		c.IDType = "text"
	}
	table, mark := c.Table.Sanitize(), pgx.Identifier{c.Mark}.Sanitize()
	where := " WHERE " + pgx.Identifier{c.ID}.Sanitize() + " = $1::" + c.IDType
	update := "UPDATE " + table + " SET " + mark + " = $2::bigint" + where + " AND coalesce(" + mark + ", 0) %s $2::bigint"
	return &Marks{
		advance: map[fence.Rule]string{
			fence.Above:    fmt.Sprintf(update, "<"),
			fence.Equal:    fmt.Sprintf(update, "="),
			fence.NotBelow: fmt.Sprintf(update, "<="),
		},
		highest: "SELECT coalesce(" + mark + ", 0) FROM " + table + where,
	}
}

// In returns the marks inside a transaction of the caller's: what it admits is written if the transaction commits, and
// nobody newer is admitted before it has ended. That is the way to guard what stands in the same database.
// Errors leave the mark as it was once the transaction is rolled back.
func (m *Marks) In(tx pgx.Tx) fence.HighWater {
	return &water{marks: m, db: tx}
}

// Apart returns the marks in transactions of their own, one for each decision: for a resource that
// is not in this database, and only where writes are let through one by one, as adapters/rpc/guard does within one process.
// A [fence.Follower] raises marks of either kind of resource this way, since it writes nothing else.
// After an error that is ambiguous the mark may have been raised.
func (m *Marks) Apart(pool *pgxpool.Pool) fence.HighWater {
	return &water{marks: m, db: pool, alone: true}
}

// database is what transactions and pools have in common.
type database interface {
	Exec(ctx context.Context, sql string, arguments ...any) (pgconn.CommandTag, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// water is Marks with a way to the database.
type water struct {
	marks *Marks
	db    database
	// alone: a statement commits by itself.
	alone bool
}

// Advance implements [fence.HighWater]. Highest of a refusal is the mark a moment later.
func (w *water) Advance(ctx context.Context, resource string, token lock.Token, rule fence.Rule) (fence.Verdict, error) {
	if err := fence.Check(resource, token, rule); err != nil {
		return fence.Verdict{}, err
	}
	tag, err := w.db.Exec(ctx, w.marks.advance[rule], resource, int64(token))
	switch {
	case err != nil:
		return fence.Verdict{}, translate(err, w.alone)
	case tag.RowsAffected() == 1:
		return fence.Verdict{Admitted: true, Highest: token}, nil
	case tag.RowsAffected() > 1:
		return fence.Verdict{}, lock.Invalid("resource", "has several rows")
	}
	var highest int64
	err = w.db.QueryRow(ctx, w.marks.highest, resource).Scan(&highest)
	if errors.Is(err, pgx.ErrNoRows) {
		if !w.marks.create {
			return fence.Verdict{}, lock.Invalid("resource", "has no row")
		}
		err = nil
	}
	return fence.Verdict{Highest: lock.Token(highest)}, translate(err, false)
}
