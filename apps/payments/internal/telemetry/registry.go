package telemetry

import (
	"fmt"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// register registers a program's own metrics, and those of the Go runtime and the process.
func register(registry prometheus.Registerer, own ...prometheus.Collector) error {
	runtime := []prometheus.Collector{
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	}
	for _, c := range slices.Concat(own, runtime) {
		if err := registry.Register(c); err != nil {
			return fmt.Errorf("create metrics: %w", err)
		}
	}
	return nil
}
