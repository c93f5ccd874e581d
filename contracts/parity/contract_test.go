package parity_test

import (
	"flag"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"regexp"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/contracts/parity"
	"github.com/fencelock/fencelock/contracts/parity/document"
	"github.com/fencelock/fencelock/core/lock"
)

var update = flag.Bool("update", false, "write the checked tables of docs/contracts")

const (
	goAPI  = "../../docs/contracts/C2-go-api.md"
	naming = "../../docs/contracts/C5-config-and-naming.md"
)

func table(file, name string) document.Table {
	return document.Table{File: file, Name: name, Update: *update}
}

// TestPortsDocument: the document names every method of every port, and its signature.
func TestPortsDocument(t *testing.T) {
	t.Parallel()
	files, err := document.Files("../../core/port")
	if err != nil {
		t.Fatal(err)
	}
	var rows [][]string
	for _, file := range files {
		ast.Inspect(file, func(node ast.Node) bool {
			spec, ok := node.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if port, ok := spec.Type.(*ast.InterfaceType); ok && spec.Name.IsExported() {
				for _, m := range port.Methods.List {
					rows = append(rows, method(spec.Name.Name, m))
				}
			}
			return false
		})
	}
	table(goAPI, "ports").Check(t, rows)
}

func method(port string, m *ast.Field) []string {
	name := types.ExprString(m.Type) // an embedded port
	signature := "–"
	if len(m.Names) == 1 {
		name = m.Names[0].Name
		text := strings.TrimPrefix(types.ExprString(m.Type), "func")
		signature = document.Code(strings.ReplaceAll(text, "ctx context.Context", "ctx"))
	}
	return []string{document.Code(port + "." + name), signature, document.Prose}
}

// TestErrorsDocument: the document has the closed set, with the names to compare with and what may be retried.
func TestErrorsDocument(t *testing.T) {
	t.Parallel()
	codes, err := document.Constants("../../core/lock", "Code")
	if err != nil {
		t.Fatal(err)
	}
	sentinels := sentinelsByCode(t)
	var rows [][]string
	for _, c := range codes {
		retry := "no"
		if (&lock.Error{Code: lock.Code(c.Value)}).SafeToRetry() {
			retry = "yes"
		}
		rows = append(rows, []string{document.Code(c.Value), document.Code(sentinels[c.Name]), retry, document.Prose, document.Prose})
	}
	table(goAPI, "errors").Check(t, rows)
}

// sentinelsByCode reads the variables ErrX = &Error{Code: CodeX, ...} of core/lock.
func sentinelsByCode(t *testing.T) map[string]string {
	t.Helper()
	files, err := document.Files("../../core/lock")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, file := range files {
		for _, declaration := range file.Decls {
			group, ok := declaration.(*ast.GenDecl)
			if !ok || group.Tok != token.VAR {
				continue
			}
			for _, spec := range group.Specs {
				value := spec.(*ast.ValueSpec)
				for i, name := range value.Names {
					if m := regexp.MustCompile(`Code: (Code\w+)`).FindStringSubmatch(source(value.Values[i])); m != nil {
						found[m[1]] = name.Name
					}
				}
			}
		}
	}
	return found
}

// source is an expression with the fields of composite literals written out.
func source(e ast.Expr) string {
	var out strings.Builder
	ast.Inspect(e, func(node ast.Node) bool {
		if field, ok := node.(*ast.KeyValueExpr); ok {
			fmt.Fprintf(&out, "%s: %s; ", types.ExprString(field.Key), types.ExprString(field.Value))
		}
		return true
	})
	return out.String()
}

// TestClausesDocument: the document has the subtests of the suite, and how many cases each has.
func TestClausesDocument(t *testing.T) {
	t.Parallel()
	var rows [][]string
	for _, name := range parity.Names() {
		number, slug, _ := strings.Cut(name, "_")
		rows = append(rows, []string{number, strings.ReplaceAll(slug, "_", " "), fmt.Sprint(len(parity.Cases(number)))})
	}
	table(goAPI, "clauses").Check(t, rows)
}

// TestNamesDocument: lengths and alphabets in the document are those that core/lock takes.
func TestNamesDocument(t *testing.T) {
	t.Parallel()
	key := func(s string) error { _, err := lock.NewKey("", s); return err }
	namespace := func(s string) error { _, err := lock.NewNamespace(s); return err }
	request := func(s string) error { _, err := lock.NewRequestID(s); return err }
	session := func(s string) error { _, err := lock.ParseSessionID(s); return err }
	owner := func(s string) error { _, err := lock.NewOwner(s); return err }
	rules := []struct {
		what  string
		unit  string
		most  int
		check func(string) error
	}{
		{"key", "bytes", 4 * lock.MaxKeyBytes, key},
		{"namespace", "bytes", 4 * lock.MaxNamespaceBytes, namespace},
		{"session id", "digits", 64, session},
		{"request id", "bytes", 4 * lock.MaxRequestIDBytes, request},
		{"owner", "characters", 4 * lock.MaxOwnerRunes, owner},
		{"operator", "characters", 4 * lock.MaxOwnerRunes, lock.CheckOperator},
		{"reason", "characters", 4 * lock.MaxReasonRunes, lock.CheckReason},
	}
	var rows [][]string
	for _, r := range rules {
		low, high := lengths(r.check, r.most)
		length := fmt.Sprintf("%d to %d %s", low, high, r.unit)
		if low == high {
			length = fmt.Sprintf("%d %s", low, r.unit)
		}
		rows = append(rows, []string{r.what, length, document.Prose, document.Prose})
	}
	names := table(naming, "names")
	names.Check(t, rows)
	for i, row := range names.Rows(t) {
		if i < len(rules) {
			compareAlphabet(t, rules[i].what, strings.Trim(row[2], "`"), rules[i].check)
		}
	}
}

// lengths returns the shortest and the longest text of letters that check takes.
func lengths(check func(string) error, most int) (low, high int) {
	for n := 1; n <= most; n++ {
		if check(strings.Repeat("a", n)) != nil {
			continue
		}
		if low == 0 {
			low = n
		}
		high = n
	}
	return low, high
}

// compareAlphabet tries every character of one byte, and some others, in the middle of a text.
func compareAlphabet(t *testing.T, what, class string, check func(string) error) {
	t.Helper()
	documented, err := regexp.Compile(`^` + class + `$`)
	if err != nil {
		t.Errorf("%s: %v", what, err)
		return
	}
	low, _ := lengths(check, 64)
	tried := []rune{'ä', '€', '語', '\u200b', '\u202e', '\u2028', '\u2029', '\u0085'}
	for c := range rune(0x80) {
		tried = append(tried, c)
	}
	for _, c := range tried {
		text := "a" + string(c) + strings.Repeat("a", max(1, low-2))
		if got, want := check(text) == nil, documented.MatchString(string(c)); got != want {
			t.Errorf("%s: %q is taken: %t, the document says %t", what, c, got, want)
		}
	}
}
