package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
)

// result is one run: the subtests in their order, and how each ended.
type result struct {
	// store is what it ran on, such as "etcd 3.7".
	store string
	ended map[string]string
	// failed: the run itself failed, whatever the subtests say.
	failed bool
}

// storeLine is what an entry point logs.
var storeLine = regexp.MustCompile(`^\s*\S+\.go:\d+: store: (.+)\n$`)

// read takes the subtests out of a run; their names are without the entry point's, which
// differs from backend to backend.
func read(name string, in io.Reader) (result, error) {
	r := result{store: name, ended: map[string]string{}}
	lines := bufio.NewScanner(in)
	const longest = 1 << 20
	lines.Buffer(nil, longest)
	for lines.Scan() {
		var event struct{ Action, Test, Output string }
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			return r, fmt.Errorf("read run of %s: %w", name, err)
		}
		_, subtest, below := strings.Cut(event.Test, "/")
		switch event.Action {
		case "output":
			if m := storeLine.FindStringSubmatch(event.Output); m != nil && !below {
				r.store = m[1]
			}
		case "pass", "fail", "skip":
			if below {
				r.ended[subtest] = event.Action
			}
			r.failed = r.failed || event.Action == "fail"
		case "build-fail":
			r.failed = true
		}
	}
	if err := lines.Err(); err != nil {
		return r, fmt.Errorf("read run of %s: %w", name, err)
	}
	return r, nil
}

// compare prints the table and returns what speaks against parity.
func compare(out io.Writer, of []clause, results []result) error {
	all := map[string]bool{}
	for _, c := range of {
		all[c.name] = true
		for _, name := range c.subtests() {
			all[name] = true
		}
	}
	known := len(all)
	var faults []error
	if len(results) == 0 {
		faults = append(faults, errors.New("no run to compare"))
	}
	stores := map[string]bool{}
	for _, r := range results {
		if stores[r.store] {
			faults = append(faults, fmt.Errorf("two runs on %s", r.store))
		}
		stores[r.store] = true
		if r.failed {
			faults = append(faults, fmt.Errorf("the run on %s failed", r.store))
		}
		for name := range r.ended {
			if !all[name] {
				faults = append(faults, fmt.Errorf("%s on %s: not in the suite", name, r.store))
			}
		}
	}
	faults = append(faults, table(out, slices.Sorted(maps.Keys(all)), results)...)
	if len(faults) > 0 {
		return errors.Join(faults...)
	}
	fmt.Fprintf(out, "%d subtests, the same on each of %d stores, all passed\n", known, len(results))
	return nil
}

// table prints how each subtest ended in each run, and returns those that did not pass.
func table(out io.Writer, names []string, results []result) (faults []error) {
	lines := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprint(lines, "subtest")
	for _, r := range results {
		fmt.Fprint(lines, "\t", r.store)
	}
	fmt.Fprintln(lines)
	for _, name := range names {
		fmt.Fprint(lines, name)
		for _, r := range results {
			ended, ran := r.ended[name]
			if !ran {
				ended = "absent"
			}
			if ended != "pass" {
				ended = strings.ToUpper(ended)
				faults = append(faults, fmt.Errorf("%s on %s: %s", name, r.store, ended))
			}
			fmt.Fprint(lines, "\t", ended)
		}
		fmt.Fprintln(lines)
	}
	if err := lines.Flush(); err != nil {
		faults = append(faults, fmt.Errorf("print table: %w", err))
	}
	return faults
}
