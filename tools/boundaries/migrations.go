package boundaries

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"path"
	"strings"
)

// applied names each migration that may have been applied somewhere, in the format of sha256sum. It is only added to.
//
//go:embed migrations.txt
var applied string

// changedMigrations finds migrations that are not what the list says: a database that has applied one never applies it again, so
// that a change of it reaches new databases only.
func changedMigrations(list string, migrations []source) []string {
	sums := map[string]string{}
	for line := range strings.Lines(list) {
		if sum, name, ok := strings.Cut(strings.TrimSpace(line), "  "); ok {
			sums[name] = sum
		}
	}
	var found []string
	for _, m := range migrations {
		if path.Base(path.Dir(m.Path)) != "migrations" {
			continue
		}
		sum := sha256.Sum256(m.Text)
		want, listed := sums[m.Path]
		delete(sums, m.Path)
		switch got := hex.EncodeToString(sum[:]); {
		case !listed:
			found = append(found, fmt.Sprintf("%s: not listed in migrations.txt; add %s  %s", m.Path, got, m.Path))
		case want != got:
			found = append(found, m.Path+": changed after it was listed; add a migration instead")
		}
	}
	for name := range sums {
		found = append(found, name+": is gone")
	}
	return found
}
