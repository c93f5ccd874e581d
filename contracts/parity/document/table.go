package document

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Prose stands for a cell that people write.
const Prose = "\x00"

// T is the part of testing.TB that this package uses.
type T interface {
	Helper()
	Errorf(format string, args ...any)
}

// Table is one table of a document.
type Table struct {
	// File is the document's path.
	File string
	// Name is the table's name in the comment before it.
	Name string
	// Update makes Check write the table instead of comparing it.
	Update bool
}

// Check reports every difference between the table and the rows, with -update after it has
// written what it can. The first cell of a row is its name.
func (b Table) Check(t T, rows [][]string) {
	t.Helper()
	if b.Update {
		if err := b.write(rows); err != nil {
			t.Errorf("%s, table %s: %v", b.File, b.Name, err)
		}
	}
	found, err := b.read()
	if err != nil {
		t.Errorf("%s, table %s: %v", b.File, b.Name, err)
		return
	}
	for _, difference := range compare(found.header, found.rows, rows) {
		t.Errorf("%s, table %s: %s", b.File, b.Name, difference)
	}
}

// Rows returns what the document says, for checks of its prose.
func (b Table) Rows(t T) [][]string {
	t.Helper()
	found, err := b.read()
	if err != nil {
		t.Errorf("%s, table %s: %v", b.File, b.Name, err)
	}
	return found.rows
}

// parsed is a table and the text around it, which begins and ends with the comments.
type parsed struct {
	before, after string
	header        []string
	rows          [][]string
}

func (b Table) read() (parsed, error) {
	text, err := os.ReadFile(b.File)
	if err != nil {
		return parsed{}, fmt.Errorf("read document: %w", err)
	}
	return parse(string(text), b.Name)
}

// writing keeps checks of one document in one process from overwriting each other.
var writing sync.Mutex //nolint:gochecknoglobals // it guards files, which are global

func (b Table) write(rows [][]string) error {
	writing.Lock()
	defer writing.Unlock()
	found, err := b.read()
	if err != nil {
		return err
	}
	if err := os.WriteFile(b.File, []byte(found.with(rows)), 0o644); err != nil { //nolint:gosec // a document is for everyone
		return fmt.Errorf("write document: %w", err)
	}
	return nil
}

// parse finds the table in the text.
func parse(text, name string) (parsed, error) {
	begin := regexp.MustCompile(`(?m)^<!-- table `+regexp.QuoteMeta(name)+`: .* -->\n`).FindAllStringIndex(text, -1)
	if len(begin) != 1 {
		return parsed{}, fmt.Errorf("%d comments begin it, want one", len(begin))
	}
	from := begin[0][1]
	body, _, ended := strings.Cut(text[from:], "<!-- end -->")
	if !ended || strings.Contains(body, "<!--") {
		return parsed{}, fmt.Errorf("no comment ends it")
	}
	lines := strings.Split(strings.TrimSpace(body), "\n")
	if len(lines) < 2 || !regexp.MustCompile(`^(\|-+)+\|$`).MatchString(lines[1]) {
		return parsed{}, fmt.Errorf("it does not begin with a header and a line of dashes")
	}
	found := parsed{before: text[:from], after: text[from+len(body):], header: cells(lines[0])}
	for _, line := range lines[2:] {
		row := cells(line)
		if len(row) != len(found.header) {
			return parsed{}, fmt.Errorf("row %q has %d cells, the header has %d", line, len(row), len(found.header))
		}
		found.rows = append(found.rows, row)
	}
	return found, nil
}

// with is the document with other rows; prose stays with the row of its name.
func (p parsed) with(rows [][]string) string {
	var out strings.Builder
	out.WriteString(p.before)
	out.WriteString(line(p.header))
	out.WriteString(strings.Repeat("|---", len(p.header)) + "|\n")
	for _, row := range rows {
		row = slices.Clone(row)
		old := named(p.rows, row[0])
		for i, cell := range row {
			if cell != Prose {
				continue
			}
			row[i] = ""
			if i < len(old) {
				row[i] = old[i]
			}
		}
		out.WriteString(line(row))
	}
	out.WriteString(p.after)
	return out.String()
}

// compare returns the differences between the rows of a table and those that the code knows.
func compare(header []string, got, want [][]string) []string {
	var found []string
	for _, row := range got {
		if named(want, row[0]) == nil {
			found = append(found, fmt.Sprintf("%s is not in the code", row[0]))
		}
	}
	for _, row := range want {
		there := named(got, row[0])
		switch {
		case len(row) != len(header):
			found = append(found, fmt.Sprintf("%s has %d cells in the code, the header has %d", row[0], len(row), len(header)))
		case there == nil:
			found = append(found, fmt.Sprintf("%s is missing", row[0]))
		default:
			found = append(found, compareRow(header, there, row)...)
		}
	}
	if found == nil && !slices.EqualFunc(got, want, func(a, b []string) bool { return a[0] == b[0] }) {
		found = append(found, "rows come twice, or in another order than in the code")
	}
	return found
}

func compareRow(header, got, want []string) []string {
	var found []string
	for i, cell := range want {
		switch {
		case cell == Prose && strings.Trim(got[i], " .…") == "":
			found = append(found, fmt.Sprintf("%s: write its %s", want[0], header[i]))
		case cell != Prose && got[i] != cell:
			found = append(found, fmt.Sprintf("%s: %s is %q, in the code %q", want[0], header[i], got[i], cell))
		}
	}
	return found
}

func named(rows [][]string, name string) []string {
	for _, row := range rows {
		if row[0] == name {
			return row
		}
	}
	return nil
}

// bar stands for an escaped bar while a line is taken apart.
const bar = "\x01"

func cells(line string) []string {
	line = strings.ReplaceAll(strings.TrimSpace(line), `\|`, bar)
	line = strings.TrimSuffix(strings.TrimPrefix(line, "|"), "|")
	parts := strings.Split(line, "|")
	for i, part := range parts {
		parts[i] = strings.ReplaceAll(strings.TrimSpace(part), bar, "|")
	}
	return parts
}

func line(row []string) string {
	escaped := make([]string, len(row))
	for i, cell := range row {
		escaped[i] = strings.ReplaceAll(cell, "|", `\|`)
	}
	return "| " + strings.Join(escaped, " | ") + " |\n"
}

// Code sets text in code style; empty text, which a table cannot show so, becomes a dash.
func Code(text string) string {
	if text == "" {
		return "–"
	}
	return "`" + text + "`"
}
