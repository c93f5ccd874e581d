package main

import (
	"io"
	"testing"
	"time"
)

func TestTheCommandLineSaysWhatIsMeasuredAndWhere(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"wake", "now"}, {"sleep"}, {"wake", "--backend=redis"}, {"--backend=etcd", "wake"}} {
		if _, _, err := read(args, io.Discard); err == nil {
			t.Errorf("%q is taken", args)
		}
	}
	for only, want := range map[string][]string{"": {"etcd", "postgres"}, "etcd": {"etcd"}, "postgres": {"postgres"}} {
		measure, backends, err := read([]string{"grants", "--backend=" + only}, io.Discard)
		if err != nil || measure == nil || len(backends) != len(want) {
			t.Fatalf("%q: %v, %v", only, backends, err)
		}
		for i, b := range backends {
			if b.name != want[i] {
				t.Errorf("%q: %s at %d, want %s", only, b.name, i, want[i])
			}
		}
	}
}

func TestPercentilesAreOfAllThatWasMeasured(t *testing.T) {
	t.Parallel()
	if _, err := percentilesOf(nil); err == nil {
		t.Error("nothing has percentiles")
	}
	var took []time.Duration
	for i := 101; i > 0; i-- {
		took = append(took, time.Duration(i)*time.Millisecond)
	}
	p, err := percentilesOf(took)
	want := percentiles{n: 101, p50: 51 * time.Millisecond, p90: 91 * time.Millisecond, p99: 100 * time.Millisecond, max: 101 * time.Millisecond}
	if err != nil || p != want {
		t.Errorf("got %+v, %v; want %+v", p, err, want)
	}
}
