package document_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/fencelock/fencelock/contracts/parity/document"
)

func TestConstantsOfATypeAreFoundInOrder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"b.go":      "package p\n\nconst C Kind = \"c\"\n",
		"a.go":      "package p\n\ntype Kind string\n\nconst (\n\tA Kind = \"a\"\n\tB Kind = \"b\"\n\tOther Sort = \"x\"\n\tplain = \"y\"\n)\n",
		"a_test.go": "package p\n\nconst D Kind = \"d\"\n",
		"notes.txt": "no Go",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := document.Constants(dir, "Kind")
	want := []document.Constant{{Name: "A", Value: "a"}, {Name: "B", Value: "b"}, {Name: "C", Value: "c"}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("constants %v, %v, want %v", got, err, want)
	}
	if got, err := document.Constants(dir, "Nothing"); err == nil {
		t.Errorf("constants of no type: %v", got)
	}
	if _, err := document.Constants(filepath.Join(dir, "none"), "Kind"); err == nil {
		t.Error("constants of a folder that is not there")
	}
	if err := os.WriteFile(filepath.Join(dir, "c.go"), []byte("no Go"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := document.Constants(dir, "Kind"); err == nil {
		t.Error("constants of what is not Go")
	}
}
