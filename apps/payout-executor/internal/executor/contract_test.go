package executor

import (
	"flag"
	"testing"

	"github.com/fencelock/fencelock/contracts/parity/document"
)

var update = flag.Bool("update", false, "write the checked tables of docs/contracts")

// TestLogLinesDocument: the document has every line that the executor logs besides its events.
func TestLogLinesDocument(t *testing.T) {
	t.Parallel()
	rows, err := document.LogLines(".")
	if err != nil {
		t.Fatal(err)
	}
	document.Table{
		File: "../../../../docs/contracts/C4-observability.md", Name: "executor-log-lines", Update: *update,
	}.Check(t, rows)
}
