package executor

import (
	"flag"
	"go/ast"
	"go/types"
	"slices"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/contracts/parity/document"
)

var update = flag.Bool("update", false, "write the checked tables of docs/contracts")

// TestLogLinesDocument: the document has every line that the executor logs besides its events.
func TestLogLinesDocument(t *testing.T) {
	t.Parallel()
	files, err := document.Files(".")
	if err != nil {
		t.Fatal(err)
	}
	var rows [][]string
	for _, file := range files {
		ast.Inspect(file, func(node ast.Node) bool {
			if row := logLine(node); row != nil {
				rows = append(rows, row)
			}
			return true
		})
	}
	slices.SortFunc(rows, func(a, b []string) int { return strings.Compare(a[0], b[0]) })
	document.Table{
		File: "../../../../docs/contracts/C4-observability.md", Name: "executor-log-lines", Update: *update,
	}.Check(t, rows)
}

// logLine is the row for a call of a logger, or nil for anything else.
func logLine(node ast.Node) []string {
	call, ok := node.(*ast.CallExpr)
	if !ok {
		return nil
	}
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || !strings.HasSuffix(types.ExprString(method.X), "logger") {
		return nil
	}
	level, message := strings.ToLower(strings.TrimSuffix(method.Sel.Name, "Context")), 0
	switch {
	case method.Sel.Name == "LogAttrs":
		level, message = strings.ToLower(strings.TrimPrefix(types.ExprString(call.Args[1]), "slog.Level")), 2
	case strings.HasSuffix(method.Sel.Name, "Context"):
		message = 1
	}
	if !slices.Contains([]string{"debug", "info", "warn", "error"}, level) {
		return nil
	}
	var fields []string
	for _, arg := range call.Args[message+1:] {
		if field, ok := arg.(*ast.CallExpr); ok && strings.HasPrefix(types.ExprString(field.Fun), "slog.") {
			fields = append(fields, document.Code(document.Text(field.Args[0])))
		}
	}
	if fields == nil {
		fields = []string{"–"}
	}
	return []string{document.Code(document.Text(call.Args[message])), level, strings.Join(fields, ", "), document.Prose}
}
