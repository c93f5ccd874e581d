package main

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestDocumentIsWrittenAndChecked(t *testing.T) {
	t.Parallel()
	doc := filepath.Join(t.TempDir(), "parity.md")
	ref, one, two, ten := "r="+file(t, reference()), "a="+file(t, passed), "b="+file(t, on("Two 9")), "c="+file(t, on("Two 10"))
	must := func(fault string, args ...string) {
		t.Helper()
		err := run(io.Discard, small(), args)
		if fault == "" && err != nil || fault != "" && (err == nil || !strings.Contains(err.Error(), fault)) {
			t.Fatalf("%q: got %v, want %q", args, err, fault)
		}
	}
	must("no such file", "-check", doc, ref)
	must("", "-write", doc, ten, ref, one)
	must("", "-check", doc, ref, ten, one)
	must("", "-check", doc, one) // a part of what it says
	must("", "-check", doc, two) // a version that nobody has written yet
	must("| clause | promise | cases | r | one 1.2 | Three 3 | Two 10 |", "-check", doc, "d="+file(t, on("Three 3")))
	must("| clause | promise | cases | b | r | one 1.2 | Two 10 |", "-check", doc, "b="+file(t, reference()))
	must("| clause | promise | cases | one | r | one 1.2 | Two 10 |", "-check", doc, "one="+file(t, reference()))
	must("", "-write", doc, two)
	must("", "-check", doc, ref, one, two, ten)
	written := content(t, doc)
	for _, want := range []string{
		"| clause | promise | cases | r | one 1.2 | Two 9 | Two 10 |\n|---|---|---|---|---|---|---|\n",
		"| LOCK-01 | one at a time | 2 | 2 | 2 | 2 | 2 |\n", "- under concurrency\n",
	} {
		if !strings.Contains(written, want) {
			t.Errorf("the document lacks %q:\n%s", want, written)
		}
	}
	must("ABSENT", "-write", doc, "d="+file(t, strings.Replace(passed, "always", "never", 1)))
	if content(t, doc) != written {
		t.Error("a run with a fault was written")
	}
}

// TestChangesOfTheSuiteShow: a column that was not run anew keeps what it showed.
func TestChangesOfTheSuiteShow(t *testing.T) {
	t.Parallel()
	doc := filepath.Join(t.TempDir(), "parity.md")
	old := []clause{small()[1]}
	part := strings.Join(slices.DeleteFunc(strings.SplitAfter(on("two 3"), "\n"), func(line string) bool {
		return strings.Contains(line, "LOCK-01")
	}), "")
	if err := run(io.Discard, old, []string{"-write", doc, "a=" + file(t, part)}); err != nil {
		t.Fatal(err)
	}
	if err := run(io.Discard, small(), []string{"-write", doc, "a=" + file(t, passed)}); err != nil {
		t.Fatal(err)
	}
	if text := content(t, doc); !strings.Contains(text, "| LOCK-01 | one at a time | 2 | 2 | 0 |\n| LOCK-02 | tokens increase | 1 | 1 | 1 |\n") {
		t.Errorf("the document claims what was not run:\n%s", text)
	}
	if err := run(io.Discard, small(), []string{"-check", doc, "a=" + file(t, on("two 3"))}); err == nil {
		t.Error("a column that is behind is up to date")
	}
}

func TestDocumentOfAnotherKindIsRefused(t *testing.T) {
	t.Parallel()
	for what, text := range map[string]string{
		"no table":       "# Notes\n",
		"a narrow line":  "| clause | promise | cases | r |\n|---|---|---|---|\n| LOCK-01 | one | 1 |\n",
		"a broken count": "| clause | promise | cases | r |\n|---|---|---|---|\n| LOCK-01 | one | 1 | many |\n",
	} {
		doc := file(t, text)
		for _, flag := range []string{"-write", "-check"} {
			if err := run(io.Discard, small(), []string{flag, doc, "r=" + file(t, reference())}); err == nil {
				t.Errorf("%s %s: no error", flag, what)
			}
		}
		if content(t, doc) != text {
			t.Errorf("%s: it was changed", what)
		}
	}
}

// TestTheDocumentIsOfThisSuite: docs/parity.md has the clauses and cases of the suite, whatever was run since.
func TestTheDocumentIsOfThisSuite(t *testing.T) {
	t.Parallel()
	const path = "../../../docs/parity.md"
	if err := checkDocument(io.Discard, path, suite(), nil); err != nil {
		t.Error(err)
	}
}

func content(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
