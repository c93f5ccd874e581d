package metrics_test

import (
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/tools/drills/metrics"
)

const text = `# HELP lock_fenced_out_total Writes refused.
# TYPE lock_fenced_out_total counter
lock_fenced_out_total{resource="account"} 0
lock_fenced_out_total{resource="ledger"} 2

go_goroutines 12
process_open_fds 9
payout_execute_seconds_bucket{outcome="posted",le="+Inf"} 7
payout_execute_seconds_sum{outcome="posted"} 1.5e-3
`

func TestSeriesAreRead(t *testing.T) {
	t.Parallel()
	s, err := metrics.Read(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if v, ok := s.Value(`lock_fenced_out_total{resource="ledger"}`); v != 2 || !ok {
		t.Errorf("ledger is %v, %v", v, ok)
	}
	if _, ok := s.Value(`lock_fenced_out_total{resource="rail"}`); ok {
		t.Error("a series is there that is not")
	}
	if of := s.Of("lock_fenced_out_total"); len(of) != 2 || of.Sum() != 2 {
		t.Errorf("series of the metric: %v", of)
	}
	want := []string{"lock_fenced_out_total", "payout_execute_seconds_bucket", "payout_execute_seconds_sum"}
	if got := s.Names(); !reflect.DeepEqual(got, want) {
		t.Errorf("names %v; want %v", got, want)
	}
}

func TestWhatCannotBeReadIsAnError(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"lonely", "name value"} {
		if _, err := metrics.Read(strings.NewReader(text)); err == nil {
			t.Errorf("%q was read", text)
		}
	}
}

func TestAServerThatRefusesIsAnError(t *testing.T) {
	t.Parallel()
	status := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte(text))
	}))
	defer server.Close()
	if s, err := metrics.Get(t.Context(), server.Client(), server.URL); err != nil || len(s) != 6 {
		t.Errorf("scrape: %v, %v", s, err)
	}
	status = http.StatusServiceUnavailable
	if _, err := metrics.Get(t.Context(), server.Client(), server.URL); err == nil {
		t.Error("503 was read")
	}
}
