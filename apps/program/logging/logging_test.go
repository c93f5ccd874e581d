package logging_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/apps/program/logging"
)

func TestLevelAndFormat(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	logger := (&logging.Config{Level: "warn", Format: "text"}).Logger(&out)
	logger.Info("quiet")
	logger.Warn("loud")
	if text := out.String(); strings.Contains(text, "quiet") || !strings.Contains(text, "msg=loud") {
		t.Errorf("log %s", text)
	}
	for _, wrong := range []logging.Config{{Level: "loud", Format: "json"}, {Level: "info", Format: "xml"}, {}} {
		if err := wrong.Check(); err == nil || !strings.HasPrefix(err.Error(), "log.") {
			t.Errorf("%+v: %v", wrong, err)
		}
	}
}

func TestErrorsAreOneLineWithoutPasswords(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"json", "text"} {
		var out bytes.Buffer
		logger := (&logging.Config{Level: "info", Format: format}).Logger(&out)
		logger.Error("failed", "error", errors.New("failed:\n\tpostgres://app:hunter2@db: refused"))
		if text := out.String(); !strings.Contains(text, `"failed: postgres://xxxxx@db: refused"`) {
			t.Errorf("log %s", text)
		}
	}
}
