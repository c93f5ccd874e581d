package document_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/contracts/parity/document"
)

const text = `# Codes

<!-- table codes: a/b TestCodes -->
| code | retry | meaning |
|---|---|---|
| ` + "`A`" + ` | yes | the first |
| ` + "`B\\|C`" + ` | no | the second |
<!-- end -->

Prose.
`

// rows is what the code says where the text is right.
func rows() [][]string {
	return [][]string{{"`A`", "yes", document.Prose}, {"`B|C`", "no", document.Prose}}
}

// recorder notes failures instead of failing.
type recorder struct{ failures []string }

func (r *recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func write(t *testing.T, text string) document.Table {
	t.Helper()
	file := filepath.Join(t.TempDir(), "C.md")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return document.Table{File: file, Name: "codes"}
}

func read(t *testing.T, table document.Table) string {
	t.Helper()
	text, err := os.ReadFile(table.File)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestATableThatIsRightPasses(t *testing.T) {
	t.Parallel()
	table := write(t, text)
	table.Check(t, rows())
	if got := table.Rows(t); len(got) != 2 || got[1][0] != "`B|C`" {
		t.Errorf("rows: %q", got)
	}
}

// TestDifferencesAreFound plants one fault each, in the document or in the code.
func TestDifferencesAreFound(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		old, new string
		code     func([][]string) [][]string
		says     string
	}{
		"a row is gone":                {old: "| `A` | yes | the first |\n", says: "`A` is missing"},
		"a row too many":               {old: "<!-- end", new: "| `D` | no | the third |\n<!-- end", says: "`D` is not in the code"},
		"a row comes twice":            {old: "<!-- end", new: "| `A` | yes | again |\n<!-- end", says: "twice"},
		"a cell is wrong":              {old: "| yes", new: "| no", says: "retry is \"no\", in the code \"yes\""},
		"prose is empty":               {old: "the first", says: "write its meaning"},
		"prose is dots":                {old: "the first", new: "...", says: "write its meaning"},
		"a cell too many":              {old: "the first", new: "the | first", says: "has 4 cells"},
		"no table":                     {old: "<!-- table codes:", new: "<!-- tables codes:", says: "0 comments begin it"},
		"two of the name":              {old: "# Codes\n", new: "<!-- table codes: a/b TestCodes -->\n", says: "2 comments begin it"},
		"no end":                       {old: "<!-- end -->", says: "no comment ends it"},
		"another table before the end": {old: "<!-- end -->", new: "<!-- table other: x -->\n<!-- end -->", says: "no comment ends it"},
		"no header":                    {old: "|---|---|---|\n", says: "line of dashes"},
		"a row more in the code": {
			code: func(r [][]string) [][]string { return append(r, []string{"`D`", "no", document.Prose}) }, says: "`D` is missing",
		},
		"a row less in the code": {code: func(r [][]string) [][]string { return r[1:] }, says: "`A` is not in the code"},
		"another order in the code": {
			code: func(r [][]string) [][]string { slices.Reverse(r); return r }, says: "another order",
		},
		"a cell more in the code": {
			code: func(r [][]string) [][]string { r[0] = append(r[0], "x"); return r }, says: "has 4 cells in the code",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			table, code := write(t, strings.Replace(text, test.old, test.new, 1)), rows()
			if test.code != nil {
				code = test.code(code)
			}
			var r recorder
			table.Check(&r, code)
			if len(r.failures) != 1 || !strings.Contains(r.failures[0], test.says) {
				t.Errorf("failures %q, want one that says %q", r.failures, test.says)
			}
		})
	}
}

func TestUpdateWritesTheRowsAndKeepsTheProse(t *testing.T) {
	t.Parallel()
	table := write(t, text)
	table.Update = true
	var r recorder
	table.Check(&r, [][]string{{"`B|C`", "maybe", document.Prose}, {"`D`", "no", document.Prose}})
	if len(r.failures) != 1 || !strings.Contains(r.failures[0], "`D`: write its meaning") {
		t.Errorf("failures %q, want one for the row without prose", r.failures)
	}
	_, body, _ := strings.Cut(text, "|---|---|---|\n")
	want := strings.Replace(text, body, "| `B\\|C` | maybe | the second |\n| `D` | no |  |\n<!-- end -->\n\nProse.\n", 1)
	if got := read(t, table); got != want {
		t.Errorf("written:\n%s\nwant:\n%s", got, want)
	}
}

func TestADocumentThatIsNotThereFails(t *testing.T) {
	t.Parallel()
	for _, update := range []bool{false, true} {
		var r recorder
		document.Table{File: filepath.Join(t.TempDir(), "none.md"), Name: "codes", Update: update}.Check(&r, rows())
		if len(r.failures) == 0 || !strings.Contains(r.failures[0], "none.md") {
			t.Errorf("failures %q", r.failures)
		}
	}
}

func TestUpdateOfARightTableChangesNothing(t *testing.T) {
	t.Parallel()
	table := write(t, text)
	table.Update = true
	table.Check(t, rows())
	if got := read(t, table); got != text {
		t.Errorf("written:\n%s", got)
	}
}

func TestCode(t *testing.T) {
	t.Parallel()
	if got := document.Code("x") + document.Code(""); got != "`x`–" {
		t.Errorf("got %s", got)
	}
}
