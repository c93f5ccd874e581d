package main

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// percentiles are of how long something took each time.
type percentiles struct {
	n                  int
	p50, p90, p99, max time.Duration
}

func percentilesOf(took []time.Duration) (percentiles, error) {
	if len(took) == 0 {
		return percentiles{}, errors.New("nothing was measured")
	}
	slices.Sort(took)
	at := func(share float64) time.Duration {
		return took[int(float64(len(took)-1)*share)].Round(time.Microsecond)
	}
	return percentiles{n: len(took), p50: at(0.5), p90: at(0.9), p99: at(0.99), max: at(1)}, nil
}

// String implements fmt.Stringer.
func (p percentiles) String() string {
	return fmt.Sprintf("n %d  p50 %v  p90 %v  p99 %v  max %v", p.n, p.p50, p.p90, p.p99, p.max)
}
