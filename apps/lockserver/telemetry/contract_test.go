package telemetry_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/fencelock/fencelock/adapters/rpc"
	"github.com/fencelock/fencelock/apps/lockserver/telemetry"
	"github.com/fencelock/fencelock/contracts/parity/document"
)

var update = flag.Bool("update", false, "write the checked tables of docs/contracts")

func table(name string) document.Table {
	return document.Table{File: "../../../docs/contracts/C4-observability.md", Name: name, Update: *update}
}

// form is the regular expression that C5 gives for names of a kind.
func form(t *testing.T, what string) *regexp.Regexp {
	t.Helper()
	forms := document.Table{File: "../../../docs/contracts/C5-config-and-naming.md", Name: "forms"}
	for _, row := range forms.Rows(t) {
		if row[0] == what {
			return regexp.MustCompile(`^` + strings.Trim(row[1], "`") + `$`)
		}
	}
	t.Fatalf("C5 has no form for %s", what)
	return nil
}

// families are the server's own metrics under a backend, as a scrape shows them before anything has happened.
func families(t *testing.T, backend string) []*dto.MetricFamily {
	t.Helper()
	registry := prometheus.NewRegistry()
	metrics, err := telemetry.NewMetrics(registry, backend)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = metrics.Close(context.WithoutCancel(t.Context())) })
	if err := metrics.CountHeld(func(context.Context) (int, error) { return 0, nil }); err != nil {
		t.Fatal(err)
	}
	all, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(f *dto.MetricFamily) bool {
		return strings.HasPrefix(f.GetName(), "go_") || strings.HasPrefix(f.GetName(), "process_")
	})
}

// TestMetricsDocument: the document has every metric, and there are the same under every backend but for the label.
func TestMetricsDocument(t *testing.T) {
	t.Parallel()
	named := form(t, "metric")
	for _, backend := range []string{"etcd", "postgres"} {
		var rows [][]string
		for _, f := range families(t, backend) {
			if !named.MatchString(f.GetName()) {
				t.Errorf("%s is not of the form %s", f.GetName(), named)
			}
			rows = append(rows, []string{
				document.Code(f.GetName()), strings.ToLower(f.GetType().String()), labels(t, f, backend),
				fmt.Sprint(len(f.GetMetric())), f.GetHelp(), document.Prose,
			})
		}
		table("metrics").Check(t, rows)
	}
}

// labels lists the labels of a family, with their values but for the backend's, which must be backend.
func labels(t *testing.T, f *dto.MetricFamily, backend string) string {
	t.Helper()
	values := map[string][]string{}
	for _, m := range f.GetMetric() {
		for _, l := range m.GetLabel() {
			if l.GetName() != "backend" {
				values[l.GetName()] = append(values[l.GetName()], l.GetValue())
			} else if l.GetValue() != backend {
				t.Errorf("%s says backend %q under %s", f.GetName(), l.GetValue(), backend)
			}
		}
	}
	text := "`backend`"
	for _, name := range slices.Sorted(maps.Keys(values)) {
		text += ", " + document.Code(name) + " (" + strings.Join(values[name], ", ") + ")"
	}
	return text
}

// started notes the spans that were begun, ended or not.
type started struct {
	sdktrace.SpanProcessor

	mu    sync.Mutex
	spans [][]string
}

// OnStart implements sdktrace.SpanProcessor.
func (s *started) OnStart(_ context.Context, span sdktrace.ReadWriteSpan) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for _, a := range span.Attributes() {
		names = append(names, document.Code(string(a.Key)))
	}
	s.spans = append(s.spans, []string{document.Code(span.Name()), strings.Join(names, ", "), document.Prose})
}

// OnEnd implements sdktrace.SpanProcessor.
func (s *started) OnEnd(sdktrace.ReadOnlySpan) {}

// Shutdown implements sdktrace.SpanProcessor.
func (s *started) Shutdown(context.Context) error { return nil }

// TestSpansDocument calls every method of the service and compares the spans that begin with the document.
func TestSpansDocument(t *testing.T) {
	t.Parallel()
	processor := &started{}
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(processor))
	traced := reflect.ValueOf(telemetry.Traced(&fixed{token: 7}, provider.Tracer("test")))
	for method := range reflect.TypeFor[rpc.Service]().Methods() {
		callWithZeros(t, traced.MethodByName(method.Name))
	}
	slices.SortFunc(processor.spans, func(a, b []string) int { return strings.Compare(a[0], b[0]) })
	table("spans").Check(t, processor.spans)
}

// callWithZeros calls a method whatever becomes of it: most have no service behind them here.
func callWithZeros(t *testing.T, method reflect.Value) {
	t.Helper()
	defer func() { _ = recover() }()
	var args []reflect.Value
	for in := range method.Type().Ins() {
		if in == reflect.TypeFor[context.Context]() {
			args = append(args, reflect.ValueOf(t.Context()))
			continue
		}
		args = append(args, reflect.Zero(in))
	}
	method.Call(args)
}
