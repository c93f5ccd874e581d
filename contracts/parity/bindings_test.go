package parity_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/contracts/parity"
	"github.com/fencelock/fencelock/core/port"
)

// Every backend runs the same subtests: a binding does nothing but hand its hooks to RunParity, once and
// unconditionally; RunParity runs every clause whatever the hooks are; and the hooks have no place for an
// exception. The tests of this file hold the sources to that, so none of them needs a store. What
// really ran is compared by the report command.

// bindings are the backends that are bound, in order.
func bindings() []string { return []string{"etcd", "postgres"} }

// TestBindingsHoldHooksOnly: each adapter has one test that runs the suite, and its file has no case of its own.
func TestBindingsHoldHooksOnly(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob("../../adapters/*/*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var bound []string
	for _, path := range paths {
		text := textOf(t, path)
		if !strings.Contains(text, "parity.Run") {
			continue
		}
		bound = append(bound, filepath.Base(filepath.Dir(path)))
		for _, fault := range bindingFaults(text) {
			t.Errorf("%s: %s", path, fault)
		}
	}
	if !slices.Equal(bound, bindings()) {
		t.Errorf("files that run the suite are in the adapters %q, want one in each of %q", bound, bindings())
	}
}

// TestTheSuiteKnowsNoBackend: neither by name nor by type.
func TestTheSuiteKnowsNoBackend(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	read := 0
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		read++
		for _, fault := range suiteFaults(textOf(t, path)) {
			t.Errorf("%s: %s", path, fault)
		}
	}
	if read == 0 {
		t.Error("there is no suite here")
	}
}

// TestAHarnessCarriesNoException: it has functions and ports, and no data that could spare a backend a case.
func TestAHarnessCarriesNoException(t *testing.T) {
	t.Parallel()
	if faults := fieldFaults(reflect.TypeFor[parity.Harness](), reflect.TypeFor[parity.Fixture]()); len(faults) > 0 {
		t.Error(faults)
	}
	planted := reflect.TypeFor[struct {
		New  func()
		Skip []string
	}]()
	if faults := fieldFaults(planted); len(faults) != 1 {
		t.Errorf("a list of exceptions: found %q", faults)
	}
}

// TestThePlannedCasesExist: the cases that were asked for before there was a suite are in it by name.
func TestThePlannedCasesExist(t *testing.T) {
	t.Parallel()
	var all []string
	for _, name := range parity.Names() {
		all = append(all, parity.Cases(name)...)
	}
	for _, want := range []string{
		"single-holder mutual exclusion under concurrency",
		"token strictly increasing across acquire and release cycles",
		"token strictly increasing across a revocation",
		"extend returning the same token",
		"extend on a lost grant is lost",
		"stale-releaser attempt failing",
		"wrong-session release failing",
		"session death releases all N locks",
		"heartbeat false is terminal",
		"transport failure surfacing as contention and never as lost",
		"read returning a plausible picture",
		"revoke advancing the floor",
		"acquire-with-wait completing within maxWait",
		"acquire-with-wait respecting interruption",
	} {
		if !slices.Contains(all, want) {
			t.Errorf("the suite has no case %q", want)
		}
	}
}

// TestRulesOfBindingsFindPlantedFaults is the control of the rules above.
func TestRulesOfBindingsFindPlantedFaults(t *testing.T) {
	t.Parallel()
	const run = "parity.RunParity(t, parity.Harness{New: newFixture})"
	sound := "func TestParity(t *testing.T) {\n\tt.Logf(\"store: one %s\", version(t))\n\t" + run + "\n}\n"
	if faults := bindingFaults("package p\n\n" + sound); len(faults) > 0 {
		t.Errorf("a sound binding: %q", faults)
	}
	for what, text := range map[string]string{
		"a case of its own":       sound + "func TestMore(t *testing.T) {}\n",
		"a benchmark":             sound + "func BenchmarkMore(b *testing.B) {}\n",
		"a condition":             "func TestParity(t *testing.T) { if !testing.Short() { " + run + " } }\n",
		"a way out":               "func TestParity(t *testing.T) { if testing.Short() { return }; " + run + " }\n",
		"a subtest":               "func TestParity(t *testing.T) { t.Run(\"one\", more); " + run + " }\n",
		"a setting":               "func TestParity(t *testing.T) { t.Setenv(\"A\", \"b\"); " + run + " }\n",
		"two runs":                "func TestParity(t *testing.T) { " + run + "; " + run + " }\n",
		"part of the suite":       "func TestParity(t *testing.T) { parity.Run(t, harness(), \"LOCK-01\", \"held is held\") }\n",
		"another name":            strings.ReplaceAll(sound, "TestParity", "TestSome"),
		"a harness from anywhere": strings.ReplaceAll(sound, "parity.Harness{New: newFixture}", "harness()"),
		"a run elsewhere":         sound + "func more(t *testing.T) { " + run + " }\n",
	} {
		if faults := bindingFaults("package p\n\n" + text); len(faults) == 0 {
			t.Errorf("%s: nothing found", what)
		}
	}
	for what, text := range map[string]string{
		"a name":           "// as etcd does\nvar a int\n",
		"another name":     "const a = \"PostgreSQL\"\n",
		"the discriminant": "func f(b port.LockStore) bool { return b.BackendID() == \"x\" }\n",
		"a type switch":    "func f(a any) { switch a.(type) { case int: } }\n",
		"a type assertion": "func f(a any) { _, _ = a.(int) }\n",
		"reflection":       "import \"reflect\"\n\nvar a = reflect.TypeOf(1)\n",
		"a skip":           "func f(t *testing.T) { t.Skip() }\n",
		"a branch":         "func RunParity(t *testing.T) { if testing.Short() { return } }\n",
	} {
		if faults := suiteFaults("package p\n\n" + text); len(faults) == 0 {
			t.Errorf("%s: nothing found", what)
		}
	}
}

// bindingFaults finds what a file that runs the suite must not have.
func bindingFaults(text string) (faults []string) {
	file, err := parser.ParseFile(token.NewFileSet(), "", text, 0)
	if err != nil {
		return []string{err.Error()}
	}
	runs := 0
	for _, declaration := range file.Decls {
		f, ok := declaration.(*ast.FuncDecl)
		if !ok {
			continue
		}
		if f.Name.Name == "TestParity" {
			for _, statement := range f.Body.List {
				switch call := types.ExprString(expression(statement)); {
				case strings.HasPrefix(call, "parity.RunParity(t, parity.Harness{"):
					runs++
				case !strings.HasPrefix(call, "t.Logf("):
					faults = append(faults, "TestParity does more than to run the suite")
				}
			}
			continue
		}
		for _, kind := range []string{"Test", "Benchmark", "Fuzz", "Example"} {
			if strings.HasPrefix(f.Name.Name, kind) {
				faults = append(faults, f.Name.Name+" is no part of a binding")
			}
		}
	}
	calls := strings.Count(text, "parity.Run")
	if runs != 1 || calls != 1 {
		faults = append(faults, fmt.Sprintf("TestParity runs the suite %d times, of %d in the file; want once", runs, calls))
	}
	return faults
}

// expression of a statement that is nothing else; any other one gives the name of its kind.
func expression(statement ast.Stmt) ast.Expr {
	if s, ok := statement.(*ast.ExprStmt); ok {
		return s.X
	}
	return ast.NewIdent(fmt.Sprintf("%T", statement))
}

// suiteFaults finds what a file of the suite must not have: words of backends, looks behind the ports,
// cases that are left out.
func suiteFaults(text string) (faults []string) {
	for _, word := range []string{"etcd", "postgres", "backendid"} {
		if strings.Contains(strings.ToLower(text), word) {
			faults = append(faults, fmt.Sprintf("it speaks of %q", word))
		}
	}
	file, err := parser.ParseFile(token.NewFileSet(), "", text, 0)
	if err != nil {
		return append(faults, err.Error())
	}
	for _, i := range file.Imports {
		if i.Path.Value == `"reflect"` {
			faults = append(faults, "it imports reflect")
		}
	}
	for _, declaration := range file.Decls {
		f, ok := declaration.(*ast.FuncDecl)
		entry := ok && f.Name.Name == "RunParity"
		ast.Inspect(declaration, func(node ast.Node) bool {
			switch n := node.(type) {
			case *ast.TypeAssertExpr: // of a type switch, too
				faults = append(faults, "it asserts a type")
			case *ast.SelectorExpr:
				if strings.HasPrefix(n.Sel.Name, "Skip") {
					faults = append(faults, "it skips")
				}
			case *ast.IfStmt, *ast.SwitchStmt, *ast.BranchStmt, *ast.ReturnStmt:
				if entry {
					faults = append(faults, "RunParity does not run everything unconditionally")
				}
			}
			return true
		})
	}
	return faults
}

// fieldFaults finds the fields of structs that are neither a function nor the ports.
func fieldFaults(structs ...reflect.Type) (faults []string) {
	for _, s := range structs {
		for f := range s.Fields() {
			if f.Type.Kind() != reflect.Func && f.Type != reflect.TypeFor[port.Backend]() {
				faults = append(faults, fmt.Sprintf("%v.%s is a %v", s, f.Name, f.Type))
			}
		}
	}
	return faults
}

// textOf reads a file.
func textOf(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
