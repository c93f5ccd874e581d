package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const passed = `{"Action":"run","Test":"TestParity/LOCK-01"}
{"Action":"pass","Test":"TestParity/LOCK-01"}
{"Action":"pass","Test":"TestParity/LOCK-02"}
{"Action":"pass","Test":"TestParity"}
{"Action":"pass"}
`

func TestReport(t *testing.T) {
	t.Parallel()
	reference := strings.ReplaceAll(passed, "TestParity", "TestReference")
	cases := []struct {
		name, other, fault string // no fault: parity
	}{
		{"the same", passed, ""},
		{"in another order", reorder(passed), ""},
		{"one less", strings.Replace(passed, `{"Action":"pass","Test":"TestParity/LOCK-02"}`+"\n", "", 1), "LOCK-02 on other: ABSENT"},
		{"one more", passed + `{"Action":"pass","Test":"TestParity/LOCK-03"}` + "\n", "LOCK-03 on reference: ABSENT"},
		{"one skipped", strings.Replace(passed, `"pass"`, `"skip"`, 1), "LOCK-01 on other: SKIP"},
		{"one failed", strings.Replace(passed, `"pass"`, `"fail"`, 1), "LOCK-01 on other: FAIL"},
		{"the run failed beside them", strings.Replace(passed, `{"Action":"pass"}`, `{"Action":"fail"}`, 1), "the run on other failed"},
		{"it did not compile", `{"Action":"build-fail"}` + "\n", "the run on other failed"},
		{"not a run", "no JSON\n", "read run of other"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			err := run(io.Discard, []string{"reference=" + file(t, reference), "other=" + file(t, c.other)})
			if c.fault == "" && err != nil || c.fault != "" && (err == nil || !strings.Contains(err.Error(), c.fault)) {
				t.Fatalf("got %v, want %q", err, c.fault)
			}
		})
	}
}

func TestReportNeedsSomethingToCompare(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"one=" + file(t, passed)}, {"one=" + file(t, ""), "two=" + file(t, "")}, {"nonsense"}, {"gone=/nonexistent"}} {
		if err := run(io.Discard, args); err == nil {
			t.Errorf("%q: no error", args)
		}
	}
}

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "run.json")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func reorder(run string) string {
	lines := strings.SplitAfter(run, "\n")
	lines[1], lines[2] = lines[2], lines[1]
	return strings.Join(lines, "")
}
