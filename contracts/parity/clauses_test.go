package parity_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/contracts/parity"
)

// TestClausesAreDocumented: the numbers in the package documentation are those
// of the subtests, in the same order, and no name comes twice.
func TestClausesAreDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	for _, m := range regexp.MustCompile(`(?m)^// ([A-Z]+-\d\d): `).FindAllSubmatch(text, -1) {
		documented = append(documented, string(m[1]))
	}
	var tested []string
	for _, name := range parity.Names() {
		number, slug, ok := strings.Cut(name, "_")
		if !ok || slug == "" {
			t.Errorf("subtest %q has no slug", name)
		}
		tested = append(tested, number)
	}
	if !slices.Equal(documented, tested) {
		t.Errorf("documented clauses %v\nsubtests %v", documented, tested)
	}
}
