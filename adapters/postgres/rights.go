package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/fencelock/fencelock/core/lock"
)

// missingRights lists the rights that a server needs and its role has not; null if it has all. The tables are found by their
// names in the catalog, which everybody may read.
const missingRights = `(
SELECT pg_catalog.string_agg(n.privilege || ' on ' || n.name, ', '::text ORDER BY n.place, n.privilege)
  FROM (VALUES (0, 'schema fencelock', 'USAGE'),
               (1, 'lock_session', 'SELECT'), (1, 'lock_session', 'INSERT'), (1, 'lock_session', 'UPDATE'), (1, 'lock_session', 'DELETE'),
               (2, 'lock_entry', 'SELECT'), (2, 'lock_entry', 'INSERT'), (2, 'lock_entry', 'UPDATE'), (2, 'lock_entry', 'DELETE'),
               (3, 'lock_meta', 'SELECT'), (3, 'lock_meta', 'UPDATE'),
               (4, 'lock_revocation', 'SELECT'), (4, 'lock_revocation', 'INSERT'), (5, 'goose_db_version', 'SELECT'),
               (6, 'fencing_token_seq', 'SELECT'), (6, 'fencing_token_seq', 'UPDATE')) AS n (place, name, privilege)
  JOIN pg_catalog.pg_namespace s ON s.nspname = 'fencelock'
  LEFT JOIN pg_catalog.pg_class c ON c.relnamespace = s.oid AND c.relname = n.name
 WHERE NOT CASE c.relkind WHEN 'S' THEN pg_catalog.has_sequence_privilege(c.oid, n.privilege)
                          WHEN 'r' THEN pg_catalog.has_table_privilege(c.oid, n.privilege)
                          ELSE n.place > 0 OR pg_catalog.has_schema_privilege(s.oid, n.privilege) END)`

func lacksRights(missing string) error {
	return lock.Contention("the server's role lacks rights: "+missing, false, nil)
}

// asker is a pool, or a connection of it.
type asker interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// explain is translate for what a server asks first, where a mistake of its operator is the likeliest cause.
func (p *pools) explain(ctx context.Context, to asker, err error) error {
	switch {
	case isState(err, statePrivilege):
		var missing *string
		if to.QueryRow(ctx, "SELECT "+missingRights).Scan(&missing) == nil && missing != nil {
			return lacksRights(*missing)
		}
	case isState(err, stateProtocolViolation, stateUndefinedObject) && !p.pooler:
		return lock.Contention("the store refuses a setting of the connection: it is one that the URL has wrong, "+
			"or there is a pooler such as pgbouncer in between, and postgres.pooler is not set", false, err)
	}
	return translate(err, reads)
}
