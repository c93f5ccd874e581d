package postgres_test

import (
	"flag"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencelock/fencelock/adapters/postgres"
	"github.com/fencelock/fencelock/contracts/parity/document"
	"github.com/fencelock/fencelock/tools/testenv"
)

var updateDocument = flag.Bool("update", false, "write the checked tables of docs/contracts")

// catalog are the queries for the tables of the document. The first column names the row, and the last one is
// the comment that the database keeps.
func catalog() []struct{ table, query string } {
	const ours = ` = 'fencelock'::regnamespace`
	return []struct{ table, query string }{
		{"postgres-tables", `
			SELECT relname, CASE relkind WHEN 'S' THEN 'sequence' ELSE 'table' END, obj_description(oid, 'pg_class')
			FROM pg_class
			WHERE relnamespace` + ours + ` AND (relkind = 'r' OR relkind = 'S' AND NOT EXISTS (
				SELECT FROM pg_depend WHERE objid = pg_class.oid AND deptype = 'i'))
			ORDER BY relname`},
		{"postgres-columns", `
			SELECT relname || '.' || attname,
				format_type(atttypid, atttypmod) || CASE WHEN attcollation = '"C"'::regcollation THEN ' COLLATE "C"' ELSE '' END
					|| CASE WHEN attnotnull THEN ' NOT NULL' ELSE '' END,
				CASE WHEN attidentity <> '' THEN 'identity' ELSE coalesce(pg_get_expr(adbin, adrelid), '') END,
				col_description(attrelid, attnum)
			FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
			WHERE relnamespace` + ours + ` AND relkind = 'r' AND attnum > 0 AND NOT attisdropped
			ORDER BY relname, attnum`},
		{"postgres-indexes", `
			SELECT indexrelid::regclass::text COLLATE "C", regexp_replace(pg_get_indexdef(indexrelid), '^CREATE (UNIQUE )?INDEX \S+ ', '\1'),
				obj_description(indexrelid, 'pg_class')
			FROM pg_index JOIN pg_class ON pg_class.oid = indrelid
			WHERE relnamespace` + ours + ` AND relkind = 'r'
			ORDER BY 1`},
		{"postgres-rules", `
			SELECT relname::text COLLATE "C" || '.' || conname, pg_get_constraintdef(pg_constraint.oid), obj_description(pg_constraint.oid, 'pg_constraint')
			FROM pg_constraint JOIN pg_class ON pg_class.oid = conrelid
			WHERE connamespace` + ours + ` AND contype NOT IN ('p', 'u', 'n')
			UNION ALL
			SELECT relname::text COLLATE "C" || '.' || tgname,
				regexp_replace(pg_get_triggerdef(pg_trigger.oid), '^CREATE TRIGGER \S+ ', ''), obj_description(tgfoid, 'pg_proc')
			FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid
			WHERE relnamespace` + ours + ` AND NOT tgisinternal
			ORDER BY 1`},
	}
}

// TestSchemaDocument: the document has what the catalog of a migrated database has, with its comments.
func TestSchemaDocument(t *testing.T) {
	t.Parallel()
	url := testenv.Postgres(t).Database(t)
	if err := postgres.Migrate(t.Context(), postgres.Access{URL: url}); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	for _, c := range catalog() {
		rows := catalogRows(t, conn, c.query)
		if commented := c.table == "postgres-tables" || c.table == "postgres-columns"; commented {
			for _, row := range rows {
				if row[len(row)-1] == "–" {
					t.Errorf("%s has no comment in the database", row[0])
				}
			}
		}
		document.Table{
			File: "../../docs/contracts/C1-database-schemas.md", Name: c.table, Update: *updateDocument,
		}.Check(t, rows)
	}
}

// catalogRows sets all but the comments in code style.
func catalogRows(t *testing.T, conn *pgx.Conn, query string) [][]string {
	t.Helper()
	result, err := conn.Query(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := pgx.CollectRows(result, func(row pgx.CollectableRow) ([]string, error) {
		values, err := row.Values()
		if err != nil {
			return nil, err
		}
		cells := make([]string, len(values))
		for i, value := range values {
			text, _ := value.(string) // no comment is no text
			text = strings.ReplaceAll(text, "fencelock.", "")
			if cells[i] = document.Code(text); i == len(values)-1 && text != "" {
				cells[i] = text
			}
		}
		return cells, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return rows
}
