package command_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// flagOf finds flags in a help text.
var flagOf = regexp.MustCompile(`--[a-z][a-z-]*`)

func TestTheReferenceNamesEveryCommandFlagAndExitCode(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "docs", "lockctl.md"))
	if err != nil {
		t.Fatal(err)
	}
	reference := string(text)
	for _, command := range []string{
		"run", "acquire", "release", "extend", "inspect", "list", "watch", "session open", "session heartbeat",
		"session close", "session list", "revoke", "revocations", "floor raise", "doctor", "version", "completion",
	} {
		if !strings.Contains(reference, "`"+command+"`") && !strings.Contains(reference, "## "+command+"\n") {
			t.Errorf("no word about %s", command)
		}
		o := call(t, environ(), append(strings.Fields(command), "--help")...)
		for _, name := range flagOf.FindAllString(o.out, -1) {
			if name != "--help" && !strings.Contains(reference, "`"+name+"`") {
				t.Errorf("no word about %s %s", command, name)
			}
		}
	}
	for line := range strings.SplitSeq(call(t, environ(), "--help").out, "\n") {
		code, _, found := strings.Cut(strings.TrimSpace(line), "  ")
		if found && len(code) == 3 && strings.HasPrefix(code, "20") && !strings.Contains(reference, "| "+code+" |") {
			t.Errorf("no word about exit code %s", code)
		}
	}
}
