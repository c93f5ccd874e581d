package boundaries

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func contractsOf(t *testing.T) []contract {
	t.Helper()
	contracts, err := readContracts(rootOf(t))
	if err != nil {
		t.Fatal(err)
	}
	return contracts
}

func TestContractsHaveTheirAnchors(t *testing.T) {
	t.Parallel()
	report(t, lostAnchors(contractsOf(t)))
}

func TestEveryTableOfAContractIsChecked(t *testing.T) {
	t.Parallel()
	report(t, unchecked(contractsOf(t), sourcesOf(t)))
}

func TestLinksOfContractsLeadSomewhere(t *testing.T) {
	t.Parallel()
	for _, c := range contractsOf(t) {
		report(t, brokenLinks(rootOf(t), c))
	}
}

// TestVariablesDocument: table "variables" has every environment variable that is not a key's.
func TestVariablesDocument(t *testing.T) {
	t.Parallel()
	sources, root := sourcesOf(t), rootOf(t)
	for _, script := range []string{"tools/testenv/images.sh", ".ci/run", "Makefile"} {
		text, err := os.ReadFile(filepath.Join(root, script))
		if err != nil {
			t.Fatal(err)
		}
		sources = append(sources, source{Path: script, Text: text})
	}
	for _, c := range contractsOf(t) {
		if filepath.Base(c.Path) == "C5-config-and-naming.md" {
			report(t, undocumentedVariables(c, sources))
			return
		}
	}
	t.Fatal("there is no document C5")
}

func TestContractRulesFindPlantedFaults(t *testing.T) {
	t.Parallel()
	const good = "# T\n\n<a id=\"here\"></a>\n\n<!-- table x: a/b TestX, c TestY -->\n| h |\n|---|\n| v |\n<!-- end -->\n[l](C.md#here) [m](#t) [n](../)\n"
	sources := []source{
		{Path: "a/b/x_test.go", Text: []byte("func TestX(t *testing.T) { table(\"x\") }")},
		{Path: "c/y_test.go", Text: []byte("func TestY(t *testing.T) { table(\"x\") }")},
	}
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "C.md"), []byte(good), 0o600); err != nil {
		t.Fatal(err)
	}
	findings := func(text string, sources []source) []string {
		c := contract{Path: "C.md", Text: text}
		return append(unchecked([]contract{c}, sources), brokenLinks(root, c)...)
	}
	if got := findings(good, sources); len(got) != 0 {
		t.Fatalf("found %q in a good document", got)
	}
	for name, test := range map[string]struct{ old, new string }{
		"a test that is not there":       {"TestX", "TestZ"},
		"a test elsewhere":               {"a/b", "a"},
		"a test of another table":        {"table x", "table z"},
		"a table without a comment":      {"<!-- end -->", "<!-- end -->\n| w |\n"},
		"a comment that begins no table": {"# T", "<!-- table y: a/b TestX -->"},
		"a link to no file":              {"C.md#here", "D.md"},
		"a link to no anchor":            {"C.md#here", "C.md#there"},
		"a link to no heading":           {"#t)", "#u)"},
	} {
		if got := findings(strings.ReplaceAll(good, test.old, test.new), sources); len(got) == 0 {
			t.Errorf("%s: found nothing", name)
		}
	}
}

func TestAnchorRuleFindsPlantedFaults(t *testing.T) {
	t.Parallel()
	var contracts []contract
	for number, names := range anchors() {
		text := ""
		for _, name := range names {
			text += `<a id="` + name + `"></a>`
		}
		contracts = append(contracts, contract{Path: "docs/contracts/" + number + "-x.md", Text: text})
	}
	if got := lostAnchors(contracts); len(got) != 0 {
		t.Fatalf("found %q in good documents", got)
	}
	for i, c := range contracts {
		if strings.HasSuffix(c.Path, "C2-x.md") {
			contracts[i].Text = strings.Replace(c.Text, "ct2-spi", "ct2-exceptions", 1)
		}
		if strings.HasSuffix(c.Path, "C3-x.md") {
			contracts[i].Path = "docs/contracts/x.md"
		}
	}
	if got := lostAnchors(contracts); len(got) != 3 {
		t.Errorf("found %q, want an anchor lost, one twice, and a document", got)
	}
}

func TestVariableRuleFindsPlantedFaults(t *testing.T) {
	t.Parallel()
	// Put together, so that the rule does not find them in this file.
	one, two, three := "FENCELOCK"+"_ONE", "DOCKER"+"_TWO", "FENCELOCK"+"_THREE"
	sources := []source{
		{Path: "a.go", Text: []byte(`os.Getenv("` + one + `"); env = "` + two + `=" + x // ` + three)},
		{Path: "a_test.go", Text: []byte(`"` + three + `"`)},
	}
	document := func(rows string) contract {
		return contract{Path: "C5.md", Text: "<!-- table variables: x -->\n" + rows + "<!-- end -->"}
	}
	rows := "| `" + one + "` | a | b |\n| `" + two + "` | a | b |\n"
	if got := undocumentedVariables(document(rows), sources); len(got) != 0 {
		t.Fatalf("found %q in a good document", got)
	}
	for name, faulty := range map[string]string{
		"a variable less":          strings.SplitAfter(rows, "\n")[0],
		"a variable more":          rows + "| `" + three + "` | a | b |\n",
		"a variable without words": strings.Replace(rows, "| b |", "|  |", 1),
	} {
		if got := undocumentedVariables(document(faulty), sources); len(got) != 1 {
			t.Errorf("%s: found %q, want one finding", name, got)
		}
	}
	key := contract{Path: "C5.md", Text: "| key | `" + three + "` |\n" + document(rows).Text}
	if got := undocumentedVariables(key, append(sources, source{Path: "b.go", Text: []byte(`"` + three + `=x"`)})); len(got) != 0 {
		t.Errorf("a variable of a key: found %q", got)
	}
	script := source{Path: "run.sh", Text: []byte("x=${" + three + ":-3} $" + two)}
	if got := undocumentedVariables(document(rows), append(sources, script)); len(got) != 1 {
		t.Errorf("a variable of a script: found %q, want one finding", got)
	}
}
