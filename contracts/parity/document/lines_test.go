package document_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/fencelock/fencelock/contracts/parity/document"
)

func TestLogLinesAreFoundInOrder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const text = `package p

func f() {
	logger.LogAttrs(ctx, slog.LevelWarn, "second", slog.String("b", b), slog.Any("a", a))
	x.logger.InfoContext(ctx, "third")
	logger.LogAttrs(ctx, level, "first: "+name)
	logger.With("not", "a line")
	other.Error("not a logger")
}
`
	if err := os.WriteFile(filepath.Join(dir, "a.go"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := document.LogLines(dir)
	want := [][]string{
		{"`first: …`", "varies", "–", document.Prose},
		{"`second`", "warn", "`b`, `a`", document.Prose},
		{"`third`", "info", "–", document.Prose},
	}
	if err != nil || !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("lines %v, %v, want %v", got, err, want)
	}
	if _, err := document.LogLines(filepath.Join(dir, "none")); err == nil {
		t.Error("lines of a folder that is not there")
	}
}
