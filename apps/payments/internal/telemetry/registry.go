package telemetry

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// register registers a program's own metrics, and those of the Go runtime and the process.
func register(registry prometheus.Registerer, own ...prometheus.Collector) error {
	all := append(own, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	for _, c := range all {
		if err := registry.Register(c); err != nil {
			return fmt.Errorf("create metrics: %w", err)
		}
	}
	return nil
}
