package boundaries

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Limits of length in lines, tests included.
const (
	maxFunction = 80
	maxFile     = 600
)

// rule is a check of one file; generated files are not asked to keep it.
type rule struct {
	name  string
	check func(source) []string
}

func rules() []rule {
	return []rule{
		{"the words of etcd's leases stay where etcd is", leaseWords},
		{"the consumer knows no store", storeWords},
		{"fx, testcontainers and testing stay in their places", misplacedImports},
		{"functions and files stay short", oversize},
		{"tests neither sleep nor skip", sleepsAndSkips},
	}
}

func leaseWords(s source) []string {
	for _, folder := range []string{"adapters/etcd/", "apps/lockserver/embedded/", "tools/testenv/", "tools/bench/"} {
		if strings.HasPrefix(s.Path, folder) {
			return nil
		}
	}
	// Put together, so that this file does not find itself.
	words := regexp.MustCompile(strings.Join([]string{"lease" + "ID", "Lease" + "Grant", "Mod" + "Revision", "Create" + "Revision"}, "|"))
	return lines(s, words)
}

// storeWords finds the names of stores in the executor of payouts, which must not differ between them.
func storeWords(s source) []string {
	if !strings.HasPrefix(s.Path, "apps/payout-executor/") {
		return nil
	}
	return lines(s, regexp.MustCompile("(?i)etcd|postgres"))
}

// lines finds the lines of a file that have one of the words.
func lines(s source, words *regexp.Regexp) []string {
	var found []string
	for i, line := range bytes.Split(s.Text, []byte("\n")) {
		if word := words.Find(line); word != nil {
			found = append(found, fmt.Sprintf("%s:%d: %s", s.Path, i+1, word))
		}
	}
	return found
}

func misplacedImports(s source) []string {
	file, _, err := parse(s)
	if err != nil {
		return []string{err.Error()}
	}
	places := []struct {
		path    string
		allowed bool
	}{
		{"go.uber.org/fx", strings.HasPrefix(s.Path, "apps/")},
		{"github.com/testcontainers/testcontainers-go", strings.HasPrefix(s.Path, "tools/testenv/")},
		{"testing", isTest(s) || s.Path == "contracts/parity/suite.go"},
	}
	var found []string
	for _, place := range places {
		if !place.allowed && imports(file, place.path) {
			found = append(found, fmt.Sprintf("%s imports %s", s.Path, place.path))
		}
	}
	return found
}

func imports(file *ast.File, want string) bool {
	return slices.ContainsFunc(file.Imports, func(spec *ast.ImportSpec) bool {
		got, err := strconv.Unquote(spec.Path.Value)
		return err == nil && covers([]string{want}, got)
	})
}

func oversize(s source) []string {
	var found []string
	if lines := bytes.Count(s.Text, []byte("\n")); lines > maxFile {
		found = append(found, fmt.Sprintf("%s has %d lines, at most %d", s.Path, lines, maxFile))
	}
	file, set, err := parse(s)
	if err != nil {
		return append(found, err.Error())
	}
	ast.Inspect(file, func(node ast.Node) bool {
		function, ok := node.(*ast.FuncDecl)
		if !ok {
			return true
		}
		lines := set.Position(function.End()).Line - set.Position(function.Pos()).Line + 1
		if lines > maxFunction {
			found = append(found, fmt.Sprintf("%s: %s has %d lines, at most %d", s.Path, function.Name.Name, lines, maxFunction))
		}
		return false
	})
	return found
}

// sleepsAndSkips finds waits on real time in tests, and tests that excuse themselves. A file that
// imports testing/synctest sleeps in virtual time.
func sleepsAndSkips(s source) []string {
	if !isTest(s) {
		return nil
	}
	file, set, err := parse(s)
	if err != nil {
		return []string{err.Error()}
	}
	virtual := imports(file, "testing/synctest")
	var found []string
	ast.Inspect(file, func(node ast.Node) bool {
		selector, ok := node.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		from, _ := selector.X.(*ast.Ident)
		sleep := from != nil && from.Name == "time" && selector.Sel.Name == "Sleep" && !virtual
		skip := slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, selector.Sel.Name)
		if sleep || skip {
			found = append(found, fmt.Sprintf("%s: %s", set.Position(selector.Pos()), selector.Sel.Name))
		}
		return true
	})
	return found
}

// undocumented finds packages without a doc.go that says what they are (for a command: a comment in
// any file), and packages whose name says nothing.
func undocumented(sources []source) []string {
	type state struct{ documented, command bool }
	packages := map[string]state{}
	var found []string
	for _, s := range sources {
		if isTest(s) || generated(s) {
			continue
		}
		file, _, err := parse(s)
		if err != nil {
			return []string{err.Error()}
		}
		dir := path.Dir(s.Path)
		p := packages[dir]
		p.command = file.Name.Name == "main"
		p.documented = p.documented || file.Doc != nil && (p.command || path.Base(s.Path) == "doc.go")
		packages[dir] = p
		if slices.Contains([]string{"util", "utils", "common", "helpers", "types"}, file.Name.Name) {
			found = append(found, s.Path+": a package named "+file.Name.Name)
		}
	}
	for dir, p := range packages {
		if !p.documented {
			found = append(found, dir+" has no doc.go with a package comment")
		}
	}
	slices.Sort(found)
	return found
}

func parse(s source) (*ast.File, *token.FileSet, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, s.Path, s.Text, parser.ParseComments)
	if err != nil {
		return nil, nil, fmt.Errorf("read Go: %w", err)
	}
	return file, set, nil
}

func isTest(s source) bool { return strings.HasSuffix(s.Path, "_test.go") }

func generated(s source) bool {
	return regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`).Match(s.Text)
}
