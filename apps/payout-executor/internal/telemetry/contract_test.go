package telemetry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/fencelock/fencelock/apps/payout-executor/internal/payout"
	"github.com/fencelock/fencelock/apps/payout-executor/internal/telemetry"
	"github.com/fencelock/fencelock/contracts/parity/document"
	"github.com/fencelock/fencelock/core/lock"
)

var update = flag.Bool("update", false, "write the checked tables of docs/contracts")

func table(name string) document.Table {
	return document.Table{File: "../../../../docs/contracts/C4-observability.md", Name: name, Update: *update}
}

// form is the regular expression that C5 gives for names of a kind.
func form(t *testing.T, what string) *regexp.Regexp {
	t.Helper()
	forms := document.Table{File: "../../../../docs/contracts/C5-config-and-naming.md", Name: "forms"}
	for _, row := range forms.Rows(t) {
		if row[0] == what {
			return regexp.MustCompile(`^` + strings.Trim(row[1], "`") + `$`)
		}
	}
	t.Fatalf("C5 has no form for %s", what)
	return nil
}

func instruments(t *testing.T, age time.Duration) (*telemetry.Metrics, *prometheus.Registry) {
	t.Helper()
	registry := prometheus.NewRegistry()
	metrics, err := telemetry.NewMetrics(registry, func() time.Duration { return age })
	if err != nil {
		t.Fatal(err)
	}
	return metrics, registry
}

// families are the executor's own metrics, as a scrape shows them.
func families(t *testing.T, registry *prometheus.Registry) []*dto.MetricFamily {
	t.Helper()
	all, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(f *dto.MetricFamily) bool {
		return strings.HasPrefix(f.GetName(), "go_") || strings.HasPrefix(f.GetName(), "process_")
	})
}

// TestMetricsDocument: the document has every metric with its series, which are all there before anything has happened.
func TestMetricsDocument(t *testing.T) {
	t.Parallel()
	named := form(t, "metric")
	_, registry := instruments(t, 0)
	var rows [][]string
	for _, f := range families(t, registry) {
		if !named.MatchString(f.GetName()) {
			t.Errorf("%s is not of the form %s", f.GetName(), named)
		}
		rows = append(rows, []string{
			document.Code(f.GetName()), strings.ToLower(f.GetType().String()), labels(f), fmt.Sprint(len(f.GetMetric())), f.GetHelp(), document.Prose,
		})
	}
	table("executor-metrics").Check(t, rows)
}

// labels lists the one label of a family, if it has one, with its values.
func labels(f *dto.MetricFamily) string {
	var name string
	var values []string
	for _, m := range f.GetMetric() {
		for _, l := range m.GetLabel() {
			name, values = l.GetName(), append(values, l.GetValue())
		}
	}
	if name == "" {
		return "–"
	}
	return document.Code(name) + " (" + strings.Join(values, ", ") + ")"
}

func TestTheGaugeShowsTheAge(t *testing.T) {
	t.Parallel()
	_, registry := instruments(t, 1500*time.Millisecond)
	for _, f := range families(t, registry) {
		if f.GetName() == "payout_backlog_age_seconds" && f.GetMetric()[0].GetGauge().GetValue() != 1.5 {
			t.Errorf("it shows %v", f.GetMetric()[0])
		}
	}
}

// kinds are the events of package payout.
func kinds(t *testing.T) []string {
	t.Helper()
	found, err := document.Constants("../payout", "EventKind")
	if err != nil {
		t.Fatal(err)
	}
	var values []string
	for _, c := range found {
		values = append(values, c.Value)
	}
	return values
}

// event is one of a kind, with everything that an event can have.
func event(kind string) payout.Event {
	return payout.Event{
		Kind: payout.EventKind(kind), Token: 33, Took: 3 * time.Second, Resource: payout.ResourceLedger, Err: lock.ErrFencedOut,
		Payout: payout.Payout{
			Ref: payout.Ref{ID: "p", Account: "a"}, Amount: 30, State: payout.StateClaimed, Reason: "it was declined", Reference: "r",
		},
	}
}

// TestEventsDocument: the document has every event, its level, fields, and the metric that counts it.
func TestEventsDocument(t *testing.T) {
	t.Parallel()
	named := form(t, "log event")
	var rows [][]string
	for _, kind := range kinds(t) {
		if !named.MatchString(kind) {
			t.Errorf("%s is not of the form %s", kind, named)
		}
		metrics, registry := instruments(t, 0)
		var log bytes.Buffer
		telemetry.NewObserver(metrics, slog.New(slog.NewJSONHandler(&log, nil))).Observe(t.Context(), event(kind))
		level, fields := lineOf(t, log.Bytes(), kind)
		rows = append(rows, []string{document.Code(kind), level, fields, counted(t, registry), document.Prose})
	}
	table("executor-events").Check(t, rows)
}

// lineOf takes a log line apart.
func lineOf(t *testing.T, line []byte, kind string) (level, fields string) {
	t.Helper()
	var names []string
	decoder := json.NewDecoder(bytes.NewReader(line))
	_, err := decoder.Token() // the brace
	for err == nil && decoder.More() {
		var name json.Token
		var value any
		if name, err = decoder.Token(); err == nil {
			err = decoder.Decode(&value)
		}
		if text, _ := name.(string); !slices.Contains([]string{"time", "level", "msg"}, text) {
			names = append(names, document.Code(text))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	var parsed map[string]any
	if err := json.Unmarshal(line, &parsed); err != nil || parsed["msg"] != kind || parsed["token"] != 33.0 {
		t.Errorf("line %s: %v", line, err)
	}
	return strings.ToLower(parsed["level"].(string)), strings.Join(names, ", ")
}

// counted names the series that has moved.
func counted(t *testing.T, registry *prometheus.Registry) string {
	t.Helper()
	for _, f := range families(t, registry) {
		for _, m := range f.GetMetric() {
			if h := m.GetHistogram(); h.GetSampleCount() == 1 && h.GetSampleSum() == 3 {
				return document.Code(f.GetName()) + ", " + m.GetLabel()[0].GetValue()
			}
		}
	}
	return "–"
}

// TestWithoutAGrantThereIsNoToken: an execution that found the lock service away.
func TestWithoutAGrantThereIsNoToken(t *testing.T) {
	t.Parallel()
	metrics, _ := instruments(t, 0)
	var log bytes.Buffer
	e := event(string(payout.PayoutLeft))
	e.Token = 0
	telemetry.NewObserver(metrics, slog.New(slog.NewJSONHandler(&log, nil))).Observe(t.Context(), e)
	if strings.Contains(log.String(), "token") {
		t.Errorf("line %s", log.String())
	}
}

// spanOf is the span of an execution with a result.
func spanOf(t *testing.T, result payout.Result) tracetest.SpanStub {
	t.Helper()
	exporter := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
	execute := telemetry.Traced(func(context.Context, payout.Payout) payout.Result { return result }, provider.Tracer("test"))
	if got := execute(t.Context(), event("").Payout); got.Outcome != result.Outcome {
		t.Errorf("result %+v", got)
	}
	return exporter.GetSpans()[0]
}

func TestSpansDocument(t *testing.T) {
	t.Parallel()
	span := spanOf(t, payout.Result{Outcome: payout.Posted, Token: 33})
	var names []string
	values := map[string]string{}
	for _, a := range span.Attributes {
		if !slices.Contains(names, document.Code(string(a.Key))) {
			names = append(names, document.Code(string(a.Key)))
		}
		values[string(a.Key)] = a.Value.String()
	}
	table("executor-spans").Check(t, [][]string{{document.Code(span.Name), strings.Join(names, ", "), document.Prose}})
	if values["lock.token"] != "33" || values["payout.outcome"] != "posted" || values["payout.id"] != "p" || span.Status.Code != codes.Unset {
		t.Errorf("span %+v, %v", values, span.Status)
	}
}

func TestAnExecutionThatWasLeftIsAFailedSpanWithACodeOnly(t *testing.T) {
	t.Parallel()
	span := spanOf(t, payout.Result{Outcome: payout.Left, Err: lock.Contention("slow", true, errors.New("a secret"))})
	if span.Status.Code != codes.Error || span.Status.Description != string(lock.CodeContention) {
		t.Errorf("status %v", span.Status)
	}
}
