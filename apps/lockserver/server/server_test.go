package server_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/fx"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fencelock/fencelock/apps/lockserver/config"
	"github.com/fencelock/fencelock/apps/lockserver/server"
	fencelockv1 "github.com/fencelock/fencelock/contracts/api/fencelock/v1"
	"github.com/fencelock/fencelock/contracts/api/fencelock/v1/fencelockv1connect"
	"github.com/fencelock/fencelock/contracts/parity/document"
)

const eventually = 60 * time.Second

// journal collects log lines.
type journal struct {
	mu   sync.Mutex
	data bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.data.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.data.String()
}

// running is a server in this process.
type running struct {
	app      *fx.App
	doors    *server.Doors
	registry *prometheus.Registry
	log      *journal
}

func settings(t *testing.T, args ...string) config.Config {
	t.Helper()
	cfg, err := config.Load(append([]string{
		"--server.addr=127.0.0.1:0", "--admin.addr=127.0.0.1:0",
	}, args...), nil)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func start(t *testing.T, args ...string) *running {
	t.Helper()
	r := &running{log: &journal{}}
	logger := slog.New(slog.NewJSONHandler(r.log, nil))
	r.app = fx.New(
		server.Options(t.Context(), settings(t, args...), logger, server.Build{Version: "test", StartedAt: time.Now()}),
		fx.Populate(&r.doors, &r.registry),
	)
	if err := r.app.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), eventually)
		defer cancel()
		if err := r.app.Stop(ctx); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	return r
}

func (r *running) sessions() fencelockv1connect.SessionServiceClient {
	return fencelockv1connect.NewSessionServiceClient(http.DefaultClient, "http://"+r.doors.Public())
}

func (r *running) locks() fencelockv1connect.LockServiceClient {
	return fencelockv1connect.NewLockServiceClient(http.DefaultClient, "http://"+r.doors.Public())
}

func (r *running) admin() fencelockv1connect.AdminServiceClient {
	return fencelockv1connect.NewAdminServiceClient(http.DefaultClient, "http://"+r.doors.Public())
}

func (r *running) open(t *testing.T, ttl time.Duration) string {
	t.Helper()
	answer, err := r.sessions().OpenSession(t.Context(), connect.NewRequest(&fencelockv1.OpenSessionRequest{Owner: "tester", Ttl: durationpb.New(ttl)}))
	if err != nil {
		t.Fatal(err)
	}
	return answer.Msg.GetSession().GetId()
}

func (r *running) acquire(t *testing.T, session, key, request string) *fencelockv1.AcquireResponse {
	t.Helper()
	answer, err := r.locks().Acquire(t.Context(), connect.NewRequest(&fencelockv1.AcquireRequest{Key: key, SessionId: session, RequestId: request}))
	if err != nil {
		t.Fatal(err)
	}
	return answer.Msg
}

func (r *running) get(t *testing.T, path string) (status int, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+r.doors.Admin()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(data)
}

func waitFor(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.NewTimer(eventually)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("never happened: %s", what)
		}
	}
}

func TestTheGraphIsComplete(t *testing.T) {
	t.Parallel()
	logger := slog.New(slog.DiscardHandler)
	for name, args := range map[string][]string{
		"embedded": nil, "external": {"--etcd.endpoints=127.0.0.1:1"},
		"postgres": {"--lock.backend=postgres", "--postgres.url=postgres://127.0.0.1:1/locks"},
	} {
		if err := fx.ValidateApp(server.Options(t.Context(), settings(t, args...), logger, server.Build{})); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// series returns the value of each series of the lock metrics, by name and labels.
func (r *running) series(t *testing.T) map[string]float64 {
	t.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, family := range families {
		if !strings.HasPrefix(family.GetName(), "lock_") {
			continue
		}
		for _, m := range family.GetMetric() {
			name := family.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetName() + "=" + l.GetValue()
			}
			values[name] = value(m)
		}
	}
	return values
}

func value(m *dto.Metric) float64 {
	switch {
	case m.GetHistogram() != nil:
		return float64(m.GetHistogram().GetSampleCount())
	case m.GetGauge() != nil:
		return m.GetGauge().GetValue()
	}
	return m.GetCounter().GetValue()
}

// everySeries is what a scrape shows, and all that it shows: no label names a key, an owner, a session or a token.
func everySeries(backend string) []string {
	of := " backend=" + backend
	series := []string{
		"lock_acquire_seconds" + of + " outcome=contended", "lock_acquire_seconds" + of + " outcome=error",
		"lock_acquire_seconds" + of + " outcome=granted",
		"lock_handoff_total" + of, "lock_held_current" + of, "lock_lease_expired_total" + of, "lock_revoked_total" + of,
		"lock_session_lost_total" + of, "lock_wait_fallback_total" + of, "lock_waiters_current" + of,
	}
	for _, kind := range incidents() {
		series = append(series, "lock_store_incident_total"+of+" kind="+kind)
	}
	return series
}

// incidents are the kinds that the sources of the adapters name.
func incidents() []string {
	var kinds []string
	for _, adapter := range []string{config.Etcd, config.Postgres} {
		constants, err := document.Constants("../../../adapters/"+adapter, "IncidentKind")
		if err != nil {
			panic(err)
		}
		for _, c := range constants {
			kinds = append(kinds, c.Value)
		}
	}
	slices.Sort(kinds)
	return slices.Compact(kinds)
}

func (r *running) checkSeries(t *testing.T, backend string) {
	t.Helper()
	got := r.series(t)
	for _, name := range everySeries(backend) {
		if _, there := got[name]; !there {
			t.Errorf("missing: %s", name)
		}
		delete(got, name)
	}
	for name := range got {
		t.Errorf("not agreed: %s", name)
	}
}

func TestTelemetryIsThereFromTheStartAndReallyEmitted(t *testing.T) {
	t.Parallel()
	for _, b := range backends() {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			args, _ := b.own(t)
			r := start(t, args...)
			r.checkSeries(t, b.name)
			for series, v := range r.series(t) {
				if v != 0 {
					t.Errorf("%s is %v before anything happened", series, v)
				}
			}
			r.emitEverything(t, b.name)
		})
	}
}

func (r *running) emitEverything(t *testing.T, backend string) {
	t.Helper()
	holder, other := r.open(t, time.Minute), r.open(t, time.Minute)
	token := r.acquire(t, holder, "secret-key", "r1").GetGrant().GetToken()
	r.acquire(t, other, "secret-key", "r1")
	r.handOff(t, backend, holder, other, token)
	if _, err := r.admin().Revoke(t.Context(), connect.NewRequest(&fencelockv1.RevokeRequest{Key: "secret-key", Operator: "op", Reason: "worker is stuck"})); err != nil {
		t.Fatal(err)
	}
	leased, err := r.locks().Acquire(t.Context(), connect.NewRequest(&fencelockv1.AcquireRequest{
		Key: "secret-lease", SessionId: holder, RequestId: "r2", Lease: durationpb.New(2 * time.Second),
	}))
	if err != nil || leased.Msg.GetGrant() == nil {
		t.Fatalf("acquire with a lease: %v, %v", leased, err)
	}
	r.acquire(t, holder, "standing", "r3")
	r.open(t, 2*time.Second) // nobody renews it
	of := " backend=" + backend
	for _, name := range []string{
		"lock_acquire_seconds" + of + " outcome=contended", "lock_acquire_seconds" + of + " outcome=granted", "lock_handoff_total" + of,
		"lock_revoked_total" + of, "lock_lease_expired_total" + of, "lock_session_lost_total" + of, "lock_held_current" + of,
	} {
		waitFor(t, name+" counts", func() bool { return r.series(t)[name] > 0 })
	}
	r.checkSeries(t, backend)
	if _, err := r.sessions().CloseSession(t.Context(), connect.NewRequest(&fencelockv1.CloseSessionRequest{SessionId: holder})); err != nil {
		t.Fatal(err)
	}
	r.checkLog(t, holder, other)
	r.checkScrape(t, backend)
}

// handOff releases the key while another session stands in line.
func (r *running) handOff(t *testing.T, backend, from, to string, token int64) {
	t.Helper()
	granted := make(chan *fencelockv1.Grant, 1)
	go func() {
		answer, err := r.locks().Acquire(t.Context(), connect.NewRequest(&fencelockv1.AcquireRequest{
			Key: "secret-key", SessionId: to, RequestId: "r9", Wait: durationpb.New(eventually),
		}))
		if err != nil {
			t.Errorf("wait: %v", err)
			close(granted)
			return
		}
		granted <- answer.Msg.GetGrant()
	}()
	waitFor(t, "the waiter counts", func() bool { return r.series(t)["lock_waiters_current backend="+backend] == 1 })
	if _, err := r.locks().Release(t.Context(), connect.NewRequest(&fencelockv1.ReleaseRequest{Key: "secret-key", SessionId: from, Token: token})); err != nil {
		t.Fatal(err)
	}
	if next := <-granted; next.GetToken() <= token {
		t.Errorf("the waiter got %v after token %d", next, token)
	}
}

func (r *running) checkLog(t *testing.T, secrets ...string) {
	t.Helper()
	for _, event := range []string{"session_opened", "session_closed", "session_lost", "lock_granted", "lock_released", "lease_expired", "lock_revoked"} {
		waitFor(t, event+" in the log", func() bool { return strings.Contains(r.log.String(), `"msg":"`+event+`"`) })
	}
	for _, secret := range secrets {
		if strings.Contains(r.log.String(), secret) {
			t.Errorf("the log shows the session id %s", secret)
		}
	}
}

func (r *running) checkScrape(t *testing.T, backend string) {
	t.Helper()
	status, text := r.get(t, "/metrics")
	if status != http.StatusOK || !strings.Contains(text, `lock_handoff_total{backend="`+backend+`"} 1`) {
		t.Errorf("scrape: %d\n%s", status, text)
	}
	for _, forbidden := range []string{"secret-key", "tester", "secret-lease"} {
		if strings.Contains(text, forbidden) {
			t.Errorf("the scrape shows %q", forbidden)
		}
	}
}

func TestReadinessFollowsTheStoreAndLivenessDoesNot(t *testing.T) {
	t.Parallel()
	for _, b := range backends() {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			args, network := b.own(t)
			r := start(t, args...)
			if status, text := r.get(t, "/readyz"); status != http.StatusOK {
				t.Fatalf("ready: %d %s", status, text)
			}
			network.Cut()
			waitFor(t, "not ready while the store is out of reach", func() bool {
				status, _ := r.get(t, "/readyz")
				return status == http.StatusServiceUnavailable
			})
			if status, text := r.get(t, "/healthz"); status != http.StatusOK {
				t.Errorf("alive: %d %s", status, text)
			}
			waitFor(t, "the log says so, with the reason", func() bool { return strings.Contains(r.log.String(), `"msg":"not_ready","reason":"`) })
			if strings.Contains(r.log.String(), `"msg":"ready_again"`) {
				t.Error("the log says ready again while the store is out of reach")
			}
			network.Heal()
			waitFor(t, "ready again", func() bool {
				status, _ := r.get(t, "/readyz")
				return status == http.StatusOK
			})
			waitFor(t, "the log says so", func() bool { return strings.Contains(r.log.String(), `"msg":"ready_again","reason":"`) })
			r.acquire(t, r.open(t, time.Minute), "after", "r1")
		})
	}
}
