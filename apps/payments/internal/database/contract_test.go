package database_test

import (
	"flag"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencelock/fencelock/apps/payments/internal/account"
	"github.com/fencelock/fencelock/apps/payments/internal/database"
	"github.com/fencelock/fencelock/apps/payments/internal/rail"
	"github.com/fencelock/fencelock/contracts/parity/document"
	"github.com/fencelock/fencelock/tools/testenv"
)

var update = flag.Bool("update", false, "write the checked tables of docs/contracts")

// The queries for the tables of the document, of the schema $1. The first column names the row, and the last one is the comment
// that the database keeps.
const (
	queryTables = `
		SELECT relname, obj_description(oid, 'pg_class') FROM pg_class
		WHERE relnamespace = $1::regnamespace AND relkind = 'r' ORDER BY relname`
	queryColumns = `
		SELECT relname || '.' || attname,
			format_type(atttypid, atttypmod) || CASE WHEN attcollation = '"C"'::regcollation THEN ' COLLATE "C"' ELSE '' END
				|| CASE WHEN attnotnull THEN ' NOT NULL' ELSE '' END,
			CASE WHEN attidentity <> '' THEN 'identity' ELSE coalesce(pg_get_expr(adbin, adrelid), '') END,
			col_description(attrelid, attnum)
		FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
		WHERE relnamespace = $1::regnamespace AND relkind = 'r' AND attnum > 0 AND NOT attisdropped
		ORDER BY relname, attnum`
	queryIndexes = `
		SELECT indexrelid::regclass::text COLLATE "C", regexp_replace(pg_get_indexdef(indexrelid), '^CREATE (UNIQUE )?INDEX \S+ ', '\1'),
			obj_description(indexrelid, 'pg_class')
		FROM pg_index JOIN pg_class ON pg_class.oid = indrelid
		WHERE relnamespace = $1::regnamespace AND relkind = 'r' ORDER BY 1`
	queryRules = `
		SELECT relname::text COLLATE "C" || '.' || conname, pg_get_constraintdef(pg_constraint.oid), obj_description(pg_constraint.oid, 'pg_constraint')
		FROM pg_constraint JOIN pg_class ON pg_class.oid = conrelid
		WHERE connamespace = $1::regnamespace AND contype NOT IN ('p', 'u', 'n')
		UNION ALL
		SELECT relname::text COLLATE "C" || '.' || tgname,
			regexp_replace(pg_get_triggerdef(pg_trigger.oid), '^CREATE TRIGGER \S+ ', ''), obj_description(tgfoid, 'pg_proc')
		FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid
		WHERE relnamespace = $1::regnamespace AND NOT tgisinternal ORDER BY 1`
)

// TestSchemasDocument: the document has what the catalog of a migrated database has, with its comments. Both schemas stand in
// one database here, which must not matter.
func TestSchemasDocument(t *testing.T) {
	t.Parallel()
	url := testenv.Postgres(t).Database(t)
	db, err := database.Open(t.Context(), url, "test")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := account.Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	if err := rail.Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	for _, c := range []struct {
		table, query, schema string
		commented            bool
	}{
		{"payment-tables", queryTables, "payment", true},
		{"payment-columns", queryColumns, "payment", true},
		{"payment-indexes", queryIndexes, "payment", false},
		{"payment-rules", queryRules, "payment", false},
		{"rail-tables", queryTables, "rail", true},
		{"rail-columns", queryColumns, "rail", true},
		{"rail-indexes", queryIndexes, "rail", false},
		{"rail-rules", queryRules, "rail", false},
	} {
		rows := catalogRows(t, conn, c.query, c.schema)
		for _, row := range rows {
			if c.commented && row[len(row)-1] == "–" {
				t.Errorf("%s has no comment in the database", row[0])
			}
		}
		document.Table{File: "../../../../docs/contracts/C1-database-schemas.md", Name: c.table, Update: *update}.Check(t, rows)
	}
}

// catalogRows sets all but the comments in code style.
func catalogRows(t *testing.T, conn *pgx.Conn, query, schema string) [][]string {
	t.Helper()
	result, err := conn.Query(t.Context(), query, schema)
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
			switch {
			case i < len(values)-1:
				cells[i] = document.Code(strings.ReplaceAll(text, schema+".", ""))
			case text == "":
				cells[i] = "–"
			default:
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
