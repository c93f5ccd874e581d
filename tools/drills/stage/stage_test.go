package stage_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/tools/drills/stage"
)

func TestARunFailsFromAnyDepthAndCleansUp(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	var order []string
	dir := ""
	err := stage.Run(t.Context(), &log, func(s *stage.Stage) error {
		dir = s.TempDir()
		s.Cleanup(func() { order = append(order, "first") })
		s.Cleanup(func() { order = append(order, "second") })
		s.Logf("step %d", 1)
		func() { s.Fatalf("no %s", "luck") }()
		return nil
	})
	if err == nil || err.Error() != "no luck" {
		t.Errorf("the run returned %v", err)
	}
	if strings.Join(order, " ") != "second first" || log.String() != "step 1\n" {
		t.Errorf("clean-up %v, log %q", order, log.String())
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the folder is still there: %v", err)
	}
}

func TestARunReturnsItsError(t *testing.T) {
	t.Parallel()
	want := errors.New("no")
	if err := stage.Run(t.Context(), &strings.Builder{}, func(*stage.Stage) error { return want }); !errors.Is(err, want) {
		t.Errorf("the run returned %v", err)
	}
}

func TestAPanicIsNotHidden(t *testing.T) {
	t.Parallel()
	cleaned := false
	defer func() {
		if r := recover(); r != "bug" || !cleaned {
			t.Errorf("recovered %v, cleaned up %v", r, cleaned)
		}
	}()
	_ = stage.Run(t.Context(), &strings.Builder{}, func(s *stage.Stage) error {
		s.Cleanup(func() { cleaned = true })
		panic("bug")
	})
}
