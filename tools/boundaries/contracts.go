package boundaries

import (
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// The reference documents in docs/contracts say by which test each of their tables is compared with the
// code. The rules here see to it that those tests are there, and check what no module's own test can.

// contract is one reference document; Path is relative to the root.
type contract struct {
	Path, Text string
}

func readContracts(root string) ([]contract, error) {
	paths, err := filepath.Glob(filepath.Join(root, "docs/contracts/*.md"))
	if err != nil {
		return nil, fmt.Errorf("find documents: %w", err)
	}
	var contracts []contract
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read document: %w", err)
		}
		contracts = append(contracts, contract{Path: relative(root, path), Text: string(text)})
	}
	return contracts, nil
}

// anchors that others cite, by the number of the document.
func anchors() map[string][]string {
	return map[string][]string{
		"C1": {"ct1-etcd", "ct1-postgres"},
		"C2": {"ct2-spi", "ct2-exceptions"},
		"C3": {},
		"C4": {"ct4-metrics", "ct4-cardinality", "ct4-zero", "ct4-logs"},
		"C5": {"ct5-config", "ct5-names"},
	}
}

// lostAnchors finds documents that are not there, and anchors that are not in them exactly once.
func lostAnchors(contracts []contract) []string {
	var found []string
	for _, number := range slices.Sorted(maps.Keys(anchors())) {
		i := slices.IndexFunc(contracts, func(c contract) bool { return strings.HasPrefix(path.Base(c.Path), number+"-") })
		if i < 0 {
			found = append(found, "there is no document "+number)
			continue
		}
		for _, anchor := range anchors()[number] {
			if n := strings.Count(contracts[i].Text, `<a id="`+anchor+`"></a>`); n != 1 {
				found = append(found, fmt.Sprintf("%s has the anchor %s %d times", contracts[i].Path, anchor, n))
			}
		}
	}
	return found
}

// unchecked finds tables without the comment that says by which test they are checked, and tests named there
// that do not exist or do not speak of the table.
func unchecked(contracts []contract, sources []source) []string {
	var found []string
	for _, c := range contracts {
		rest := c.Text
		for _, m := range regexp.MustCompile(`(?s)<!-- table (\S+): ([^\n]+) -->\n(.*?)<!-- end -->`).FindAllStringSubmatch(c.Text, -1) {
			rest = strings.Replace(rest, m[0], "", 1)
			for test := range strings.SplitSeq(m[2], ", ") {
				folder, name, _ := strings.Cut(test, " ")
				if !tested(sources, folder, name, m[1]) {
					found = append(found, fmt.Sprintf("%s: table %s is not checked by %s", c.Path, m[1], test))
				}
			}
		}
		for line := range strings.Lines(rest) {
			if strings.HasPrefix(line, "|") || strings.HasPrefix(line, "<!--") {
				found = append(found, fmt.Sprintf("%s: no test checks %s", c.Path, strings.TrimSpace(line)))
			}
		}
	}
	return found
}

// tested reports whether a test file of the folder has the test, and speaks of the table.
func tested(sources []source, folder, test, table string) bool {
	has, speaks := false, false
	for _, s := range sources {
		if path.Dir(s.Path) != folder || !isTest(s) {
			continue
		}
		has = has || strings.Contains(string(s.Text), "func "+test+"(t *testing.T)")
		speaks = speaks || strings.Contains(string(s.Text), `"`+table+`"`)
	}
	return has && speaks
}

// brokenLinks finds links to files that are not there, and to places in a document that it does not have.
func brokenLinks(root string, c contract) []string {
	var found []string
	for _, m := range regexp.MustCompile(`\]\(([^)#]*)(?:#([^)]*))?\)`).FindAllStringSubmatch(c.Text, -1) {
		file, fragment := filepath.Join(root, path.Dir(c.Path), m[1]), m[2]
		if strings.Contains(m[1], "://") {
			continue
		}
		if m[1] == "" {
			file = filepath.Join(root, c.Path)
		}
		text := []byte(nil)
		_, err := os.Stat(file)
		if err == nil && fragment != "" {
			text, err = os.ReadFile(file)
		}
		if err != nil || fragment != "" && !hasPlace(string(text), fragment) {
			found = append(found, fmt.Sprintf("%s: the link %s leads nowhere", c.Path, m[0][1:]))
		}
	}
	return found
}

// hasPlace reports whether a document has an anchor or a heading of the name.
func hasPlace(text, name string) bool {
	if strings.Contains(text, `<a id="`+name+`"></a>`) {
		return true
	}
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
		slug := regexp.MustCompile(`[^a-z0-9 _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		if strings.ReplaceAll(slug, " ", "-") == name {
			return true
		}
	}
	return false
}

// variablesIn finds the names of environment variables that a file gives as texts (Go) or reads (shell).
func variablesIn(s source) []string {
	const name = `(?:FENCELOCK|OTEL|DOCKER)_[A-Z_]*[A-Z]`
	uses := regexp.MustCompile(`"(` + name + `)[="]`)
	if path.Ext(s.Path) != ".go" {
		uses = regexp.MustCompile(`\$\{?(` + name + `)`)
	}
	var found []string
	for _, m := range uses.FindAllSubmatch(s.Text, -1) {
		found = append(found, string(m[1]))
	}
	return found
}

// undocumentedVariables compares the variables of the files with the table of the document. Those of keys stand in
// another table, which is compared elsewhere.
func undocumentedVariables(c contract, sources []source) []string {
	used := map[string]bool{}
	for _, s := range sources {
		if !isTest(s) {
			for _, name := range variablesIn(s) {
				used[name] = true
			}
		}
	}
	_, table, _ := strings.Cut(c.Text, "<!-- table variables:")
	table, _, _ = strings.Cut(table, "<!-- end -->")
	documented := map[string]bool{}
	var found []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([A-Z_]+)` \\|(.*)\\|$").FindAllStringSubmatch(table, -1) {
		documented[m[1]] = true
		if !used[m[1]] {
			found = append(found, fmt.Sprintf("%s: nothing uses %s", c.Path, m[1]))
		}
		if slices.ContainsFunc(strings.Split(m[2], "|"), func(cell string) bool { return strings.TrimSpace(cell) == "" }) {
			found = append(found, fmt.Sprintf("%s: say more about %s", c.Path, m[1]))
		}
	}
	for name := range used {
		if !documented[name] && !strings.Contains(c.Text, "| `"+name+"` |") {
			found = append(found, fmt.Sprintf("%s does not know %s", c.Path, name))
		}
	}
	slices.Sort(found)
	return found
}
