package document

import (
	"go/ast"
	"go/types"
	"slices"
	"strings"
)

// LogLines returns a row for each call of a logger in the Go files of the folders, in the order of their messages: message, level,
// fields, and [Prose]. Loggers are expressions whose name ends in "logger". A message that is put together ends in dots, and a
// level that is no constant varies.
func LogLines(folders ...string) ([][]string, error) {
	var rows [][]string
	for _, folder := range folders {
		files, err := Files(folder)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			ast.Inspect(file, func(node ast.Node) bool {
				if row := logLine(node); row != nil {
					rows = append(rows, row)
				}
				return true
			})
		}
	}
	slices.SortFunc(rows, func(a, b []string) int { return strings.Compare(a[0], b[0]) })
	return rows, nil
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
		level, message = "varies", 2
		if name, fixed := strings.CutPrefix(types.ExprString(call.Args[1]), "slog.Level"); fixed {
			level = strings.ToLower(name)
		}
	case strings.HasSuffix(method.Sel.Name, "Context"):
		message = 1
	}
	if !slices.Contains([]string{"debug", "info", "warn", "error", "varies"}, level) {
		return nil
	}
	text := Text(call.Args[message])
	if sum, ok := call.Args[message].(*ast.BinaryExpr); ok {
		text = Text(sum.X) + "…"
	}
	var fields []string
	for _, arg := range call.Args[message+1:] {
		if field, ok := arg.(*ast.CallExpr); ok && strings.HasPrefix(types.ExprString(field.Fun), "slog.") {
			fields = append(fields, Code(Text(field.Args[0])))
		}
	}
	if fields == nil {
		fields = []string{"–"}
	}
	return []string{Code(text), level, strings.Join(fields, ", "), Prose}
}
