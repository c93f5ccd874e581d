package telemetry_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/fencelock/fencelock/adapters/rpc"
	"github.com/fencelock/fencelock/apps/lockserver/telemetry"
	"github.com/fencelock/fencelock/apps/program/tracing"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
	"github.com/fencelock/fencelock/core/service"
)

// fixed answers every call with the same token.
type fixed struct {
	rpc.Service
	token lock.Token
	err   error
}

func (f *fixed) Acquire(context.Context, service.AcquireRequest) (service.AcquireResult, error) {
	return service.AcquireResult{Attempt: port.Attempt{Granted: f.err == nil, Grant: lock.Grant{Token: f.token}}}, f.err
}

func (f *fixed) Abandon(context.Context, lock.Key, lock.SessionID, lock.RequestID) (bool, error) {
	return true, f.err
}

func (f *fixed) Extend(context.Context, lock.Key, lock.SessionID, lock.Token, time.Duration) (lock.Grant, error) {
	return lock.Grant{Token: f.token}, f.err
}

func (f *fixed) Release(context.Context, lock.Key, lock.SessionID, lock.Token) (bool, error) {
	return true, f.err
}

func (f *fixed) Revoke(context.Context, port.RevokeRequest) (lock.Revocation, error) {
	return lock.Revocation{PreviousToken: f.token}, f.err
}

// callAll makes one call of each kind and returns the spans.
func callAll(t *testing.T, inner rpc.Service) tracetest.SpanStubs {
	t.Helper()
	exporter := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
	s := telemetry.Traced(inner, provider.Tracer("test"))
	key, err := lock.NewKey("", "payout:1")
	if err != nil {
		t.Fatal(err)
	}
	session := lock.NewSessionID()
	ctx := t.Context()
	_, _ = s.Acquire(ctx, service.AcquireRequest{GrantRequest: port.GrantRequest{Key: key, Session: session}})
	_, _ = s.Extend(ctx, key, session, 7, 0)
	_, _ = s.Release(ctx, key, session, 7)
	_, _ = s.Abandon(ctx, key, session, "r1")
	_, _ = s.Revoke(ctx, port.RevokeRequest{Key: key})
	spans := exporter.GetSpans()
	for _, span := range spans {
		for _, a := range span.Attributes {
			if strings.Contains(a.Value.String(), session.Reveal()) {
				t.Errorf("span %s shows the session id", span.Name)
			}
		}
	}
	return spans
}

func attribute(span tracetest.SpanStub, name string) (value string, there bool) {
	for _, a := range span.Attributes { // the last one counts
		if string(a.Key) == name {
			value, there = a.Value.String(), true
		}
	}
	return value, there
}

func TestEverySpanCarriesTheToken(t *testing.T) {
	t.Parallel()
	want := map[string]string{"lock.acquire": "7", "lock.extend": "7", "lock.release": "7", "lock.abandon": "0", "lock.revoke": "7"}
	spans := callAll(t, &fixed{token: 7})
	for _, span := range spans {
		if got, there := attribute(span, "lock.token"); !there || got != want[span.Name] {
			t.Errorf("%s: lock.token %q, want %q", span.Name, got, want[span.Name])
		}
		if key, _ := attribute(span, "lock.key"); key != "payout:1" {
			t.Errorf("%s: lock.key %q", span.Name, key)
		}
		delete(want, span.Name)
	}
	if len(want) != 0 {
		t.Errorf("no span for %v", want)
	}
}

func TestAFailedCallIsAFailedSpanWithItsCodeOnly(t *testing.T) {
	t.Parallel()
	for _, span := range callAll(t, &fixed{err: lock.Contention("slow", true, errors.New("SELECT secret"))}) {
		if span.Status.Code != codes.Error || span.Status.Description != string(lock.CodeContention) {
			t.Errorf("%s: status %v", span.Name, span.Status)
		}
	}
}

func TestWithoutAnEndpointNothingIsTraced(t *testing.T) {
	t.Parallel()
	tracer, stop, err := tracing.NewTracer(t.Context(), telemetry.Scope)
	if err != nil {
		t.Fatal(err)
	}
	if _, span := tracer.Start(t.Context(), "x"); span.IsRecording() {
		t.Error("a span is recorded that goes nowhere")
	}
	if err := stop(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestAMetricPerEventAndNoneForAnUnknownOne feeds the observer itself.
func TestAMetricPerEventAndNoneForAnUnknownOne(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	metrics, err := telemetry.NewMetrics(registry, "etcd")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = metrics.Close(context.WithoutCancel(t.Context())) }()
	var log strings.Builder
	o := telemetry.NewObserver(metrics, slog.New(slog.NewJSONHandler(&log, nil)))
	for _, kind := range []port.EventKind{port.EventFallback, port.EventFallback, port.EventHandoff, "something_new"} {
		o.Observe(t.Context(), port.Event{Kind: kind})
	}
	o.Observe(t.Context(), port.Event{Kind: port.EventAcquired, Outcome: "strange"})
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		want, counted := map[string]float64{"lock_wait_fallback_total": 2, "lock_handoff_total": 1, "lock_revoked_total": 0}[f.GetName()]
		if counted && f.GetMetric()[0].GetCounter().GetValue() != want {
			t.Errorf("%s is %v, want %v", f.GetName(), f.GetMetric()[0].GetCounter().GetValue(), want)
		}
	}
	if log.Len() != 0 {
		t.Errorf("these are for metrics only: %s", log.String())
	}
}
