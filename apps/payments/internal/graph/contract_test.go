package graph_test

import (
	"flag"
	"testing"

	"github.com/fencelock/fencelock/contracts/parity/document"
)

var update = flag.Bool("update", false, "write the checked tables of docs/contracts")

// TestLogLinesDocument: the document has every line that the programs log besides their events.
func TestLogLinesDocument(t *testing.T) {
	t.Parallel()
	rows, err := document.LogLines(".", "../api", "../account", "../rail", "../bank", "../database", "../config")
	if err != nil {
		t.Fatal(err)
	}
	document.Table{
		File: "../../../../docs/contracts/C4-observability.md", Name: "payments-log-lines", Update: *update,
	}.Check(t, rows)
}
