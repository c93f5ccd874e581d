package main

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// small is a suite for these tests.
func small() []clause {
	return []clause{
		{name: "LOCK-01_one_at_a_time", cases: []string{"held is held", "under concurrency"}},
		{name: "LOCK-02_tokens_increase", cases: []string{"always"}},
	}
}

const passed = `{"Action":"run","Test":"TestParity"}
{"Action":"output","Test":"TestParity","Output":"    parity_test.go:9: store: one 1.2\n"}
{"Action":"pass","Test":"TestParity/LOCK-01_one_at_a_time/held_is_held"}
{"Action":"pass","Test":"TestParity/LOCK-01_one_at_a_time/under_concurrency"}
{"Action":"pass","Test":"TestParity/LOCK-01_one_at_a_time"}
{"Action":"pass","Test":"TestParity/LOCK-02_tokens_increase/always"}
{"Action":"pass","Test":"TestParity/LOCK-02_tokens_increase"}
{"Action":"pass","Test":"TestParity"}
{"Action":"pass"}
`

// on is a run that says that it was on another store.
func on(store string) string { return strings.Replace(passed, "one 1.2", store, 1) }

// reference is a run that says nothing of a store.
func reference() string {
	lines := strings.SplitAfter(strings.ReplaceAll(passed, "TestParity", "TestReference"), "\n")
	return strings.Join(slices.Delete(lines, 1, 2), "")
}

func TestRunsAreComparedWithTheSuite(t *testing.T) {
	t.Parallel()
	last := `{"Action":"pass","Test":"TestParity/LOCK-02_tokens_increase/always"}` + "\n"
	cases := []struct {
		name, run, fault string // no fault: parity
	}{
		{"the same", passed, ""},
		{"in another order", reorder(passed), ""},
		{"one less", strings.Replace(passed, last, "", 1), "LOCK-02_tokens_increase/always on one 1.2: ABSENT"},
		{"one more", passed + strings.Replace(last, "always", "now_and_then", 1), "LOCK-02_tokens_increase/now_and_then on one 1.2: not in the suite"},
		{"one skipped", strings.Replace(passed, `"pass"`, `"skip"`, 1), "LOCK-01_one_at_a_time/held_is_held on one 1.2: SKIP"},
		{"one failed", strings.Replace(passed, `"pass"`, `"fail"`, 1), "LOCK-01_one_at_a_time/held_is_held on one 1.2: FAIL"},
		{"the run failed beside them", strings.Replace(passed, `{"Action":"pass"}`, `{"Action":"fail"}`, 1), "the run on one 1.2 failed"},
		{"two runs on one version", on("two 3"), "two runs on two 3"},
		{"it did not compile", `{"Action":"build-fail"}` + "\n", "the run on a failed"},
		{"nothing ran", `{"Action":"pass"}` + "\n", "LOCK-01_one_at_a_time on a: ABSENT"},
		{"not a run", "no JSON\n", "read run of a"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			err := run(io.Discard, small(), []string{"reference=" + file(t, reference()), "a=" + file(t, c.run), "b=" + file(t, on("two 3"))})
			if c.fault == "" && err != nil || c.fault != "" && (err == nil || !strings.Contains(err.Error(), c.fault)) {
				t.Fatalf("got %v, want %q", err, c.fault)
			}
		})
	}
}

func TestArgumentsThatCannotBe(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"one=" + file(t, "")}, {"nonsense"}, {"gone=/nonexistent"}, {"-unknown"}} {
		if err := run(io.Discard, small(), args); err == nil {
			t.Errorf("%q: no error", args)
		}
	}
}

// TestNamesAreThoseOfRuns: what a run shows of the suite's own names is what this command expects.
func TestNamesAreThoseOfRuns(t *testing.T) {
	t.Parallel()
	var got, want []string
	for _, c := range suite() {
		got = append(got, c.subtests()...)
		for _, name := range c.cases {
			t.Run(c.name+"/"+name, func(t *testing.T) {
				_, name, _ := strings.Cut(t.Name(), "/")
				want = append(want, name)
			})
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("expected %q\nshown    %q", got, want)
	}
}

// TestARunSaysItsStore: in the output of the entry point, and nowhere else.
func TestARunSaysItsStore(t *testing.T) {
	t.Parallel()
	for want, output := range map[string]struct{ test, text string }{
		"etcd 3.7":        {"TestParity", "    parity_test.go:9: store: etcd 3.7\n"},
		"PostgreSQL 17":   {"TestParity", "parity_test.go:9: store: PostgreSQL 17\n"},
		"named by a case": {"TestParity/LOCK-01", "    parity_test.go:9: store: etcd 3.7\n"},
		"named in a text": {"TestParity", "    parity_test.go:9: another store: etcd 3.7\n"},
	} {
		text, err := json.Marshal(map[string]string{"Action": "output", "Test": output.test, "Output": output.text})
		if err != nil {
			t.Fatal(err)
		}
		r, err := read(want, strings.NewReader(string(text)+"\n"))
		if err != nil || r.store != want {
			t.Errorf("%q: the store is %q, %v, want %q", text, r.store, err, want)
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
	lines[2], lines[3] = lines[3], lines[2]
	return strings.Join(lines, "")
}
