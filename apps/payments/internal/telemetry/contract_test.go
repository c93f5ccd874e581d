package telemetry_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/fencelock/fencelock/apps/payments/internal/account"
	"github.com/fencelock/fencelock/apps/payments/internal/rail"
	"github.com/fencelock/fencelock/apps/payments/internal/telemetry"
	"github.com/fencelock/fencelock/contracts/parity/document"
	"github.com/fencelock/fencelock/core/fence"
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

// program is one program's telemetry.
type program struct {
	registry *prometheus.Registry
	log      bytes.Buffer
	payment  *telemetry.Payment
	rail     *telemetry.Rail
}

// programs are all of them, by the name of their tables.
func programs(t *testing.T) map[string]*program {
	t.Helper()
	all := map[string]*program{}
	for _, name := range []string{"payment", "rail", "stub"} {
		p := &program{registry: prometheus.NewRegistry()}
		logger := slog.New(slog.NewJSONHandler(&p.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		var err error
		switch name {
		case "payment":
			p.payment, err = telemetry.NewPayment(p.registry, logger)
		case "rail":
			p.rail, err = telemetry.NewRail(p.registry, logger)
		default:
			_, err = telemetry.NewStub(p.registry)
		}
		if err != nil {
			t.Fatal(err)
		}
		all[name] = p
	}
	return all
}

// families are the program's own metrics, as a scrape shows them.
func (p *program) families(t *testing.T) []*dto.MetricFamily {
	t.Helper()
	all, err := p.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(f *dto.MetricFamily) bool {
		return strings.HasPrefix(f.GetName(), "go_") || strings.HasPrefix(f.GetName(), "process_")
	})
}

// labels lists the labels of a family with their values.
func labels(f *dto.MetricFamily) string {
	values := map[string][]string{}
	for _, m := range f.GetMetric() {
		for _, l := range m.GetLabel() {
			values[l.GetName()] = append(values[l.GetName()], l.GetValue())
		}
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		parts = append(parts, document.Code(name)+" ("+strings.Join(values[name], ", ")+")")
	}
	if parts == nil {
		return "–"
	}
	return strings.Join(parts, ", ")
}

// TestMetricsDocument: the document has every metric, there from the start at 0, with no label that could grow.
func TestMetricsDocument(t *testing.T) {
	t.Parallel()
	all, named := programs(t), form(t, "metric")
	for name, contract := range map[string]document.Table{
		"payment": table("payment-metrics"), "rail": table("rail-metrics"), "stub": table("stub-metrics"),
	} {
		var rows [][]string
		for _, f := range all[name].families(t) {
			if !named.MatchString(f.GetName()) {
				t.Errorf("%s is not of the form %s", f.GetName(), named)
			}
			for _, m := range f.GetMetric() {
				if m.GetCounter().GetValue() != 0 {
					t.Errorf("%s begins with %v", f.GetName(), m)
				}
			}
			rows = append(rows, []string{
				document.Code(f.GetName()), strings.ToLower(f.GetType().String()), labels(f), fmt.Sprint(len(f.GetMetric())), f.GetHelp(), document.Prose,
			})
		}
		contract.Check(t, rows)
	}
}

// TestZeroDocument: the document has the counters of which any other value than 0 is news, with all their series.
func TestZeroDocument(t *testing.T) {
	t.Parallel()
	all := programs(t)
	joined := map[string]*dto.MetricFamily{}
	for _, name := range []string{"payment", "rail"} {
		for _, f := range all[name].families(t) {
			if there := joined[f.GetName()]; there != nil {
				there.Metric = append(there.Metric, f.GetMetric()...)
			} else {
				joined[f.GetName()] = f
			}
		}
	}
	var rows [][]string
	for _, name := range []string{"lock_fenced_out_total", "rail_duplicate_attempted_total"} {
		rows = append(rows, []string{document.Code(name), labels(joined[name]), document.Prose})
	}
	table("zero").Check(t, rows)
}

// everyEvent makes each program tell of all that it can tell of, step by step; the steps are named by the event.
func everyEvent(t *testing.T, all map[string]*program) map[string][]func() {
	t.Helper()
	p, r := all["payment"].payment, all["rail"].rail
	ref := account.Ref{Payout: "p", Account: "a"}
	stale := &fence.FencedOutError{Resource: "a", Rule: fence.Equal, Presented: 7, Highest: 8}
	observe := func(e rail.Event) func() {
		e.Submission = rail.Submission{
			Order: rail.Order{Payout: "p", Account: "a", Amount: 5, Destination: "d"}, Token: 7, Outcome: e.Submission.Outcome, RailReference: "t", Transfers: 1,
		}
		return func() { r.Observe(t.Context(), e) }
	}
	failed := errors.New("no answer")
	acked := rail.Submission{Outcome: rail.Acked}
	return map[string][]func(){
		"payment": {
			func() { p.Refused(t.Context(), telemetry.ResourceLedger, ref, 7, stale) },
			func() {
				p.Refused(t.Context(), telemetry.ResourceAccount, ref, 7, &account.UnlistedError{From: account.Posted, To: account.Claimed})
			},
		},
		"rail": {
			observe(rail.Event{Kind: rail.EventFencedOut, Cause: stale}),
			observe(rail.Event{Kind: rail.EventSubmitted}),
			observe(rail.Event{Kind: rail.EventAnswered, Submission: acked}),
			observe(rail.Event{Kind: rail.EventAmbiguous, Cause: failed}),
			observe(rail.Event{Kind: rail.EventStillAmbiguous, Lookup: true}),
			observe(rail.Event{Kind: rail.EventResolved, Lookup: true, Submission: acked}),
			observe(rail.Event{Kind: rail.EventUnrecorded, Submission: acked, Cause: failed}),
			observe(rail.Event{Kind: rail.EventDuplicate}),
		},
	}
}

// moved are the counters that are not 0, and their sums so far.
func (p *program) moved(t *testing.T) map[string]float64 {
	t.Helper()
	found := map[string]float64{}
	for _, f := range p.families(t) {
		for _, m := range f.GetMetric() {
			found[f.GetName()] += m.GetCounter().GetValue()
		}
	}
	return found
}

// TestEventsDocument: the document has every event of the programs, with its level, its fields in their order, and the metrics
// that it moves.
func TestEventsDocument(t *testing.T) {
	t.Parallel()
	all, named := programs(t), form(t, "log event")
	tables := map[string]document.Table{"payment": table("payment-events"), "rail": table("rail-events")}
	told := map[string]bool{}
	for name, steps := range everyEvent(t, all) {
		p := all[name]
		var rows [][]string
		for _, step := range steps {
			before := p.moved(t)
			p.log.Reset()
			step()
			event, level, fields := line(t, p.log.Bytes())
			var metrics []string
			after := p.moved(t)
			for _, metric := range slices.Sorted(maps.Keys(after)) {
				if after[metric] != before[metric] {
					metrics = append(metrics, document.Code(metric))
				}
			}
			if !named.MatchString(event) {
				t.Errorf("%s is not of the form %s", event, named)
			}
			told[event] = true
			if metrics == nil {
				metrics = []string{"–"}
			}
			rows = append(rows, []string{document.Code(event), level, fields, strings.Join(metrics, ", "), document.Prose})
		}
		tables[name].Check(t, rows)
	}
	kinds, err := document.Constants("../rail", "Kind")
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range kinds {
		if !told[kind.Value] {
			t.Errorf("nobody told of %s", kind.Value)
		}
	}
}

// line takes the one line of a log apart.
func line(t *testing.T, log []byte) (event, level, fields string) {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(log))
	var names []string
	var all map[string]any
	if err := json.Unmarshal(log, &all); err != nil {
		t.Fatalf("%s: %v", log, err)
	}
	for depth := 0; decoder.More() || depth == 0; {
		token, err := decoder.Token()
		if err != nil {
			t.Fatal(err)
		}
		if reflect.TypeOf(token) == reflect.TypeFor[json.Delim]() {
			depth++
			continue
		}
		name, _ := token.(string)
		if !slices.Contains([]string{"time", "level", "msg"}, name) {
			names = append(names, document.Code(name))
		}
		if _, err := decoder.Token(); err != nil { // the value
			t.Fatal(err)
		}
	}
	return fmt.Sprint(all["msg"]), strings.ToLower(fmt.Sprint(all["level"])), strings.Join(names, ", ")
}
