package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// TestTheExecutorKnowsNoStore: which store the lock servers use is not its affair, so no file here speaks of one, not even of a
// library of one. What it may import is in tools/boundaries.
func TestTheExecutorKnowsNoStore(t *testing.T) {
	t.Parallel()
	words := regexp.MustCompile("(?i)et" + "cd|post" + "gres") // put together, so that this file does not find itself
	files := 0
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if word := words.Find(text); word != nil {
			t.Errorf("%s speaks of %s", path, word)
		}
		files++
		return err
	})
	if err != nil || files < 40 {
		t.Errorf("%d files were read: %v", files, err)
	}
	if !words.MatchString("github.com/x/"+"et"+"cd") || !words.MatchString("Post"+"greSQL") {
		t.Error("the words are never found")
	}
}
