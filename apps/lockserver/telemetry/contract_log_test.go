package telemetry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fencelock/fencelock/apps/lockserver/telemetry"
	"github.com/fencelock/fencelock/contracts/parity/document"
	"github.com/fencelock/fencelock/contracts/parity/reference"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
	"github.com/fencelock/fencelock/core/service"
)

func kinds(t *testing.T) []document.Constant {
	t.Helper()
	found, err := document.Constants("../../../core/port", "EventKind")
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestEventsDocument: the document has every event of the service, its level and fields where it is logged, and the
// metric that counts it.
func TestEventsDocument(t *testing.T) {
	t.Parallel()
	named, logged := form(t, "log event"), everyEvent(t)
	var rows [][]string
	for _, kind := range kinds(t) {
		if !named.MatchString(kind.Value) {
			t.Errorf("%s is not of the form %s", kind.Value, named)
		}
		level, fields := "–", "–"
		if lines := logged[kind.Value]; lines != nil {
			level, fields = strings.ToLower(lines[0]["level"].(string)), fieldsOf(lines)
		}
		rows = append(rows, []string{document.Code(kind.Value), level, fields, metricOf(t, port.EventKind(kind.Value)), document.Prose})
		delete(logged, kind.Value)
	}
	for event := range logged {
		t.Errorf("%s was logged, and is no event of the service", event)
	}
	table("events").Check(t, rows)
}

// fieldsOf lists the fields of log lines in their order; one that is not on all of them stands in parentheses.
func fieldsOf(lines []map[string]any) string {
	var found []string
	for _, name := range []string{"namespace", "key", "session", "owner", "token"} {
		n := 0
		for _, line := range lines {
			if _, there := line[name]; there {
				n++
			}
			delete(line, name)
		}
		switch n {
		case 0:
		case len(lines):
			found = append(found, document.Code(name))
		default:
			found = append(found, "("+document.Code(name)+")")
		}
	}
	for _, line := range lines {
		for name := range line {
			if !slices.Contains([]string{"time", "level", "msg"}, name) {
				found = append(found, "unknown field "+name)
			}
		}
	}
	return strings.Join(found, ", ")
}

// metricOf feeds one event to fresh metrics and returns the metric that it moves.
func metricOf(t *testing.T, kind port.EventKind) string {
	t.Helper()
	registry := prometheus.NewRegistry()
	metrics, err := telemetry.NewMetrics(registry, "etcd")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = metrics.Close(context.WithoutCancel(t.Context())) }()
	metrics.Observe(t.Context(), port.Event{Kind: kind, Outcome: port.OutcomeGranted, Duration: time.Second, Count: 1})
	all, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	moved := ""
	for _, f := range all {
		for _, m := range f.GetMetric() {
			sum := m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetHistogram().GetSampleSum()
			if strings.HasPrefix(f.GetName(), "lock_") && sum != 0 {
				moved = f.GetName()
			}
		}
	}
	return document.Code(moved)
}

// bubbleClock is the time of a bubble.
type bubbleClock struct{ start time.Time }

func (c bubbleClock) Elapsed() time.Duration { return time.Since(c.start) + time.Hour }

// everyEvent makes a service do all that it reports, in virtual time, and returns the log lines by event.
func everyEvent(t *testing.T) map[string][]map[string]any {
	t.Helper()
	var log bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		metrics, err := telemetry.NewMetrics(prometheus.NewRegistry(), "etcd")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = metrics.Close(context.WithoutCancel(t.Context())) }()
		world := reference.New()
		defer world.Close()
		logger := slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		s := service.New(world.Client().Backend(), service.Config{}, bubbleClock{time.Now()}, telemetry.NewObserver(metrics, logger))
		s.Start()
		defer s.Close()
		doEverything(t, s)
		synctest.Wait()
	})
	logged := map[string][]map[string]any{}
	for line := range bytes.Lines(log.Bytes()) {
		var fields map[string]any
		if err := json.Unmarshal(line, &fields); err != nil {
			t.Fatal(err)
		}
		event := fields["msg"].(string)
		logged[event] = append(logged[event], fields)
	}
	return logged
}

// doEverything ends grants and sessions in every way.
func doEverything(t *testing.T, s *service.Service) {
	t.Helper()
	first, second, silent := open(t, s, lock.MaxTTL), open(t, s, lock.MaxTTL), open(t, s, lock.MinTTL)
	g := acquire(t, s, first, "1", 0)
	go acquire(t, s, second, "1", 0)
	synctest.Wait()
	done(t)(s.Release(t.Context(), g.Key, first, g.Token)) // to the waiter
	synctest.Wait()
	acquire(t, s, second, "2", 0)
	done(t)(s.Abandon(t.Context(), keyOf(t, "2"), second, "2"))
	acquire(t, s, second, "3", 0)
	done(t)(s.Revoke(t.Context(), port.RevokeRequest{Key: keyOf(t, "3"), Operator: "ops", Reason: "worker is stuck"}))
	acquire(t, s, second, "4", lock.MinTTL)
	acquire(t, s, silent, "5", 0)
	time.Sleep(2 * lock.MinTTL) // both are over
	done(t)(s.RaiseFloor(t.Context(), port.FloorRequest{Above: 100, Operator: "ops", Reason: "restored a snapshot"}))
	done(t)(s.CloseSession(t.Context(), first))
}

func open(t *testing.T, s *service.Service, ttl time.Duration) lock.SessionID {
	t.Helper()
	session, err := s.OpenSession(t.Context(), port.OpenRequest{Owner: "worker", TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	return session.ID
}

// acquire waits for the key of the name, and uses that for the request as well.
func acquire(t *testing.T, s *service.Service, session lock.SessionID, name string, lease time.Duration) lock.Grant {
	t.Helper()
	r, err := s.Acquire(t.Context(), service.AcquireRequest{
		GrantRequest: port.GrantRequest{Key: keyOf(t, name), Session: session, RequestID: lock.RequestID(name), Lease: lease},
		Wait:         time.Minute,
	})
	if err != nil || !r.Granted {
		t.Errorf("acquire %s: %v, %v", name, r.Granted, err)
	}
	return r.Grant
}

func keyOf(t *testing.T, name string) lock.Key {
	t.Helper()
	key, err := lock.NewKey("", name)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func done(t *testing.T) func(what any, err error) {
	t.Helper()
	return func(what any, err error) {
		t.Helper()
		if did, isBool := what.(bool); err != nil || isBool && !did {
			t.Errorf("%v, %v", what, err)
		}
	}
}

// TestLogLinesDocument: the document has every line that the server logs besides the events of the service.
func TestLogLinesDocument(t *testing.T) {
	t.Parallel()
	rows, err := document.LogLines("..", "../server", "../embedded")
	if err != nil {
		t.Fatal(err)
	}
	table("log-lines").Check(t, rows)
}

// TestIncidentsDocument: the document has what the adapters report, under the names that the log shows.
func TestIncidentsDocument(t *testing.T) {
	t.Parallel()
	folders, err := os.ReadDir("../../../adapters")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	reporters := map[string][]string{}
	for _, folder := range folders {
		incidents, err := document.Constants("../../../adapters/"+folder.Name(), "IncidentKind")
		if err != nil {
			continue // this one reports none
		}
		for _, i := range incidents {
			if reporters[i.Value] == nil {
				names = append(names, i.Value)
			}
			reporters[i.Value] = append(reporters[i.Value], folder.Name())
		}
	}
	var rows [][]string
	for _, name := range names {
		rows = append(rows, []string{document.Code("store_" + strings.TrimPrefix(name, "store_")), strings.Join(reporters[name], ", "), document.Prose})
	}
	table("incidents").Check(t, rows)
}
