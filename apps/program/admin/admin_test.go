package admin_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fencelock/fencelock/apps/program/admin"
	"github.com/fencelock/fencelock/core/lock"
)

func TestWhatMachinesAsk(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewCounter(prometheus.CounterOpts{Name: "seen_total", Help: "."}))
	var trouble error
	server := admin.NewServer(registry, func(context.Context) error { return trouble }, slog.New(slog.DiscardHandler))
	ask := func(path string) (int, string) {
		answer := httptest.NewRecorder()
		server.Handler.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		return answer.Code, answer.Body.String()
	}
	for _, test := range []struct {
		trouble error
		path    string
		status  int
		says    string
	}{
		{nil, "/metrics", http.StatusOK, "seen_total 0"},
		{nil, "/readyz", http.StatusOK, "ready\n"},
		{lock.Contention("the database is away", false, errors.New("secret words")), "/readyz", http.StatusServiceUnavailable, "not ready: the database is away\n"},
		{errors.New("secret words"), "/readyz", http.StatusServiceUnavailable, "not ready: internal error\n"},
		{errors.New("secret words"), "/healthz", http.StatusOK, "alive\n"},
		{nil, "/debug/pprof/", http.StatusNotFound, ""},
	} {
		trouble = test.trouble
		if status, text := ask(test.path); status != test.status || !strings.Contains(text, test.says) || strings.Contains(text, "secret") {
			t.Errorf("%s: %d %q, want %d %q", test.path, status, text, test.status, test.says)
		}
	}
}
