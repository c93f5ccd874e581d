package boundaries

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// requirements finds what a module that stands alone requires.
func requirements(m module) []string {
	var found []string
	for _, r := range m.Require {
		found = append(found, fmt.Sprintf("%s requires %s", m.name(), r.Path))
	}
	return found
}

// missingReplaces finds siblings that a module reaches without a replace line to their folder.
func missingReplaces(modules []module) []string {
	byPath := map[string]module{}
	for _, m := range modules {
		byPath[m.Module.Path] = m
	}
	var found []string
	for _, m := range modules {
		for _, path := range reached(m, byPath) {
			want := relative(m.Dir, byPath[path].Dir)
			if !strings.HasPrefix(want, ".") {
				want = "./" + want
			}
			if got := replacement(m, path); got != want {
				found = append(found, fmt.Sprintf("%s replaces %s by %q, want %s", m.name(), path, got, want))
			}
		}
	}
	return found
}

// reached returns the siblings that a module requires, directly or through others, in order.
func reached(m module, byPath map[string]module) []string {
	seen := map[string]bool{m.Module.Path: true}
	var paths []string
	for todo := []module{m}; len(todo) > 0; todo = todo[1:] {
		for _, r := range todo[0].Require {
			if next, sibling := byPath[r.Path]; sibling && !seen[r.Path] {
				seen[r.Path] = true
				paths = append(paths, r.Path)
				todo = append(todo, next)
			}
		}
	}
	return paths
}

func replacement(m module, path string) string {
	for _, r := range m.Replace {
		if r.Old.Path == path {
			return filepath.ToSlash(r.New.Path)
		}
	}
	return ""
}

// unlisted finds modules that go.work does not use. tools/dev stays out of it: what the tools
// require must not reach the product.
func unlisted(modules []module, workspace []string) []string {
	var found []string
	for _, m := range modules {
		if m.Dir != "tools/dev" && !slices.Contains(workspace, m.Dir) {
			found = append(found, "go.work does not use "+m.Dir)
		}
	}
	return found
}

// unjudged finds modules that the table of imports does not know, and lines for modules that
// there are not.
func unjudged(modules []module, table []allowance) []string {
	var found []string
	for _, m := range modules {
		known := slices.ContainsFunc(table, func(a allowance) bool { return a.module == m.name() })
		if m.Dir != "tools/dev" && !known {
			found = append(found, "the table of imports lacks "+m.name())
		}
	}
	for _, a := range table {
		if !slices.ContainsFunc(modules, func(m module) bool { return m.name() == a.module }) {
			found = append(found, "the table of imports has "+a.module+", which is no module")
		}
	}
	return found
}
