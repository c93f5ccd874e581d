package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
)

// preface is the beginning of the document.
const preface = `# Parity

Generated, do not edit. The command [contracts/parity/report](../contracts/parity/report/doc.go) writes this page from runs
of the parity suite, and ` + "`make parity`" + ` fails where the page is not what its runs show.

Every store passes the same suite: each promise of [contracts/parity](../contracts/parity/doc.go) is one subtest, with its cases
below it. A cell says how many cases of the promise passed in the last run on that store that was written here. None is ever
skipped, and there are no exceptions: what differs for good reason behind the promises is in
[BACKEND-DIVERGENCES.md](BACKEND-DIVERGENCES.md). The reference is a store in memory that shows what the suite means.

`

// columns of the table before those of the stores.
const fixedColumns = 3

// column is what the document says of a store: how many cases of each clause, by number, passed.
type column struct {
	store  string
	passed map[string]int
}

// columnOf condenses a run without faults.
func columnOf(of []clause, r result) column {
	c := column{store: r.store, passed: map[string]int{}}
	for _, clause := range of {
		for _, name := range clause.subtests() {
			if r.ended[name] == "pass" {
				c.passed[clause.number()]++
			}
		}
	}
	return c
}

// render writes the document.
func render(of []clause, columns []column) string {
	var out strings.Builder
	out.WriteString(preface)
	out.WriteString("| clause | promise | cases |")
	for _, c := range columns {
		fmt.Fprintf(&out, " %s |", c.store)
	}
	out.WriteString("\n|---|---|---|" + strings.Repeat("---|", len(columns)) + "\n")
	for _, clause := range of {
		fmt.Fprintf(&out, "| %s | %s | %d |", clause.number(), clause.promise(), len(clause.cases))
		for _, c := range columns {
			fmt.Fprintf(&out, " %d |", c.passed[clause.number()])
		}
		out.WriteString("\n")
	}
	out.WriteString("\n## Cases\n")
	for _, clause := range of {
		fmt.Fprintf(&out, "\n%s, %s:\n\n", clause.number(), clause.promise())
		for _, name := range clause.cases {
			fmt.Fprintf(&out, "- %s\n", name)
		}
	}
	return out.String()
}

// parse reads the columns of a document.
func parse(text string) ([]column, error) {
	var columns []column
	for line := range strings.Lines(text) {
		line, ok := strings.CutPrefix(strings.TrimSpace(line), "| ")
		if !ok {
			continue
		}
		cells := strings.Split(strings.TrimSuffix(line, " |"), " | ")
		if len(cells) < fixedColumns || columns != nil && len(cells) != fixedColumns+len(columns) {
			return nil, fmt.Errorf("the line %q has other columns than the table", line)
		}
		if columns == nil {
			columns = []column{}
			for _, store := range cells[fixedColumns:] {
				columns = append(columns, column{store: store, passed: map[string]int{}})
			}
			continue
		}
		for i, cell := range cells[fixedColumns:] {
			n, err := strconv.Atoi(cell)
			if err != nil {
				return nil, fmt.Errorf("the line %q: %q is no number of cases", line, cell)
			}
			columns[i].passed[cells[0]] = n
		}
	}
	if columns == nil {
		return nil, errors.New("it has no table")
	}
	return columns, nil
}

// updated is the document with the columns of the runs replaced or added. An empty text is that of no document yet.
func updated(text string, of []clause, results []result) (string, error) {
	var columns []column
	if text != "" {
		var err error
		if columns, err = parse(text); err != nil {
			return "", err
		}
	}
	for _, r := range results {
		columns = slices.DeleteFunc(columns, func(c column) bool { return c.store == r.store })
		columns = append(columns, columnOf(of, r))
	}
	slices.SortStableFunc(columns, func(a, b column) int { return compareStores(a.store, b.store) })
	return render(of, columns), nil
}

// compareStores orders by name and then by version; one without a version, the reference, comes first.
func compareStores(a, b string) int {
	nameA, versionA, _ := strings.Cut(a, " ")
	nameB, versionB, _ := strings.Cut(b, " ")
	return cmp.Or(
		cmp.Compare(strings.Count(a, " "), strings.Count(b, " ")),
		strings.Compare(strings.ToLower(nameA), strings.ToLower(nameB)),
		slices.Compare(numbers(versionA), numbers(versionB)),
	)
}

// numbers of a version; what is no number counts as 0.
func numbers(version string) []int {
	var all []int
	for part := range strings.SplitSeq(version, ".") {
		n, _ := strconv.Atoi(part)
		all = append(all, n)
	}
	return all
}

func writeDocument(path string, of []clause, results []result) error {
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read document: %w", err)
	}
	text, err := updated(string(old), of, results)
	if err != nil {
		return fmt.Errorf("read document %s: %w", path, err)
	}
	const mode = 0o644
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		return fmt.Errorf("write document: %w", err)
	}
	return nil
}

// checkDocument fails if [writeDocument] would change the document, apart from versions that it does not have yet.
func checkDocument(out io.Writer, path string, of []clause, results []result) error {
	old, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read document: %w", err)
	}
	columns, err := parse(string(old))
	if err != nil {
		return fmt.Errorf("read document %s: %w", path, err)
	}
	results = slices.DeleteFunc(slices.Clone(results), func(r result) bool {
		further := isFurtherVersion(r.store, columns)
		if further {
			fmt.Fprintf(out, "%s has no column for %s yet\n", path, r.store)
		}
		return further
	})
	text, err := updated(string(old), of, results)
	if err != nil {
		return fmt.Errorf("read document %s: %w", path, err)
	}
	if text == string(old) {
		return nil
	}
	return fmt.Errorf("%s is not what these runs show; -write in the place of -check brings it up to date. The first difference:\n%s",
		path, firstDifference(string(old), text))
}

// isFurtherVersion reports whether the columns have the store in other versions only.
func isFurtherVersion(store string, columns []column) bool {
	name, _, versioned := strings.Cut(store, " ")
	others := 0
	for _, c := range columns {
		if c.store == store {
			return false
		}
		if strings.HasPrefix(c.store, name+" ") {
			others++
		}
	}
	return versioned && others > 0
}

// firstDifference shows the first line that is not the same.
func firstDifference(old, text string) string {
	is, want := strings.Split(old, "\n"), strings.Split(text, "\n")
	for i := range max(len(is), len(want)) {
		a, b := at(is, i), at(want, i)
		if a != b {
			return fmt.Sprintf("line %d\n  is:     %s\n  should: %s", i+1, a, b)
		}
	}
	return ""
}

func at(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return "(nothing)"
}
