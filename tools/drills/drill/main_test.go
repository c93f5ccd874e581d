package main

import (
	"strings"
	"testing"
	"time"
)

func TestCommandLineIsRead(t *testing.T) {
	t.Parallel()
	s, err := read([]string{"experiment", "-backend=postgres", "-runs=3"}, &strings.Builder{})
	if err != nil || s.command != "experiment" || s.backend != "postgres" || s.runs != 3 {
		t.Errorf("read %+v, %v", s, err)
	}
	s, err = read([]string{"demo"}, &strings.Builder{})
	if err != nil || s.backend != "etcd" || s.accounts != 50 || s.payouts != 500 || s.executors != 3 || s.outage != 30*time.Second {
		t.Errorf("read %+v, %v", s, err)
	}
}

func TestWhatCannotBeMeantIsRefused(t *testing.T) {
	t.Parallel()
	for _, args := range []string{"", "dance", "demo -backend=zookeeper", "demo -payouts=0", "experiment -runs=0", "demo more", "demo -speed=3"} {
		var out strings.Builder
		if code := run(strings.Fields(args), &out, &out); code != exitUsage || out.Len() == 0 {
			t.Errorf("%q: exit code %d, %q", args, code, out.String())
		}
	}
}
