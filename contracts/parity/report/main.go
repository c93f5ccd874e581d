package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
)

func main() {
	if err := run(os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "parity:", err)
		os.Exit(1)
	}
}

func run(out io.Writer, args []string) error {
	var results []result
	for _, arg := range args {
		name, path, ok := strings.Cut(arg, "=")
		if !ok {
			return fmt.Errorf("argument %q is not name=file", arg)
		}
		file, err := os.Open(path)
		if err != nil {
			return fmt.Errorf("open run: %w", err)
		}
		r, err := read(name, file)
		if err = errors.Join(err, file.Close()); err != nil {
			return err
		}
		results = append(results, r)
	}
	return report(out, results)
}

// result is one run: the subtests in their order, and how each ended.
type result struct {
	backend string
	names   []string
	ended   map[string]string
	// failed: the run itself failed, whatever the subtests say.
	failed bool
}

// read takes the subtests out of a run; their names are without the entry point's, which
// differs from backend to backend.
func read(backend string, in io.Reader) (result, error) {
	r := result{backend: backend, ended: map[string]string{}}
	lines := bufio.NewScanner(in)
	const longest = 1 << 20
	lines.Buffer(nil, longest)
	for lines.Scan() {
		var event struct{ Action, Test string }
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			return r, fmt.Errorf("read run of %s: %w", backend, err)
		}
		_, name, sub := strings.Cut(event.Test, "/")
		switch event.Action {
		case "pass", "fail", "skip":
			if sub {
				r.names = append(r.names, name)
				r.ended[name] = event.Action
			}
			r.failed = r.failed || event.Action == "fail"
		case "build-fail":
			r.failed = true
		}
	}
	slices.Sort(r.names)
	if err := lines.Err(); err != nil {
		return r, fmt.Errorf("read run of %s: %w", backend, err)
	}
	return r, nil
}

// report prints the table and returns what speaks against parity.
func report(out io.Writer, results []result) error {
	var all []string
	for _, r := range results {
		all = append(all, r.names...)
	}
	slices.Sort(all)
	all = slices.Compact(all)
	var faults []error
	if len(all) == 0 || len(results) < 2 {
		faults = append(faults, errors.New("nothing to compare"))
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprint(table, "subtest")
	for _, r := range results {
		fmt.Fprint(table, "\t", r.backend)
		if r.failed {
			faults = append(faults, fmt.Errorf("the run on %s failed", r.backend))
		}
	}
	fmt.Fprintln(table)
	for _, name := range all {
		fmt.Fprint(table, name)
		for _, r := range results {
			ended, ran := r.ended[name]
			if !ran {
				ended = "absent"
			}
			if ended != "pass" {
				ended = strings.ToUpper(ended)
				faults = append(faults, fmt.Errorf("%s on %s: %s", name, r.backend, ended))
			}
			fmt.Fprint(table, "\t", ended)
		}
		fmt.Fprintln(table)
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("print table: %w", err)
	}
	if len(faults) > 0 {
		return errors.Join(faults...)
	}
	fmt.Fprintf(out, "%d subtests, the same on %d backends, all passed\n", len(all), len(results))
	return nil
}
