package graph

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/fx"

	"github.com/fencelock/fencelock/adapters/rpc"
	"github.com/fencelock/fencelock/apps/payments/internal/api"
	"github.com/fencelock/fencelock/apps/payments/internal/database"
	"github.com/fencelock/fencelock/apps/program"
	"github.com/fencelock/fencelock/apps/program/admin"
	"github.com/fencelock/fencelock/apps/program/endpoint"
	"github.com/fencelock/fencelock/apps/program/tracing"
	"github.com/fencelock/fencelock/core/fence"
	"github.com/fencelock/fencelock/core/lock"
)

const (
	// stopTimeout is how long a program may take to stop.
	stopTimeout = 30 * time.Second
	// bodyLimit is how long the body of a request may take to arrive.
	bodyLimit = 10 * time.Second
	// pingLimit bounds the question for readiness.
	pingLimit = 2 * time.Second
)

// warn says what is dangerous about a configuration.
func warn(logger *slog.Logger, open []string, fencing bool, harm string) {
	for _, key := range open {
		logger.Warn("open_to_network", slog.String("key", key), slog.String("danger", "anybody who can reach this address can move money"))
	}
	if !fencing {
		logger.Error("fencing_off", slog.String("danger", harm))
	}
}

// base is what all programs have.
func base(ctx context.Context, logger *slog.Logger, publicKeyFile string) fx.Option {
	return fx.Options(
		fx.Supply(logger),
		fx.Provide(
			func() context.Context { return ctx },
			prometheus.NewRegistry,
			newHealth,
			newTracer,
			func() (fence.Reader, error) { return newReader(publicKeyFile) },
			newDoors,
		),
		fx.Invoke(func(*doors) {}),
	)
}

func newTracer(ctx context.Context, lc fx.Lifecycle) (trace.Tracer, error) {
	tracer, stop, err := tracing.NewTracer(ctx, api.Scope)
	if err != nil {
		return nil, err
	}
	lc.Append(fx.StopHook(stop))
	return tracer, nil
}

// newReader reads the keys of which one must have signed each token.
func newReader(file string) (fence.Reader, error) {
	if file == "" {
		return fence.Unsigned{}, nil
	}
	text, err := os.ReadFile(file) //nolint:gosec // the operator names the file
	if err != nil {
		return nil, fmt.Errorf("read fence.public-key-file: %w", err)
	}
	keys, err := fence.ParsePublicKeys(text)
	if err != nil {
		return nil, fmt.Errorf("read fence.public-key-file: %w", err)
	}
	return fence.NewVerifier(keys...)
}

// health tells whether a program can serve.
type health struct {
	stopping atomic.Bool
	// ask asks what the program depends on; nil: nothing.
	ask func(context.Context) error
	// begin is called when stopping begins, and drain when no calls are left: it waits for what goes on without its caller.
	begin func()
	drain func(context.Context) error
}

func newHealth() *health {
	return &health{begin: func() {}, drain: func(context.Context) error { return nil }}
}

// ready is nil if calls can be served now.
func (h *health) ready(ctx context.Context) error {
	if h.stopping.Load() {
		return lock.Contention("the program is stopping", false, nil)
	}
	if h.ask == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, pingLimit)
	defer cancel()
	return h.ask(ctx)
}

// stop closes the door of the calls and lets what is in flight end.
func (h *health) stop(ctx context.Context, door *endpoint.Endpoint) error {
	h.stopping.Store(true)
	h.begin()
	door.Stop(ctx)
	return h.drain(ctx)
}

// before is what is made before a database is opened: where a later constructor fails, nobody would close it.
type before struct {
	fx.In

	Reader fence.Reader
	Tracer trace.Tracer
}

// openDatabase connects and migrates.
func openDatabase(
	ctx context.Context, lc fx.Lifecycle, h *health, url, name string, migrate func(context.Context, *database.Database) error,
) (*database.Database, error) {
	db, err := database.Open(ctx, url, name)
	if err != nil {
		return nil, err
	}
	if err := migrate(ctx, db); err != nil {
		db.Close()
		return nil, fmt.Errorf("open the database: %w", err)
	}
	lc.Append(fx.StopHook(db.Close))
	h.ask = db.Ping
	return db, nil
}

// addresses are those of the doors.
type addresses struct{ public, admin string }

// doors are the endpoints of a program.
type doors struct{ public, admin *endpoint.Endpoint }

func newDoors(lc fx.Lifecycle, stop fx.Shutdowner, at addresses, handler http.Handler, registry *prometheus.Registry, h *health,
	logger *slog.Logger,
) *doors {
	failed := func(err error) {
		logger.Error("serving_failed", slog.Any("error", err))
		_ = stop.Shutdown(fx.ExitCode(program.ExitFailed))
	}
	d := &doors{
		public: endpoint.New(rpc.NewServer(impatient(bodyLimit, handler), logger), at.public, failed),
		admin:  endpoint.New(admin.NewServer(registry, h.ready, logger), at.admin, failed),
	}
	// The admin door opens first and closes last, so that a probe sees the stopping.
	lc.Append(fx.StartStopHook(d.admin.Start, d.admin.Stop))
	lc.Append(fx.StartStopHook(d.public.Start, func(ctx context.Context) error {
		logger.InfoContext(ctx, "stopping")
		return h.stop(ctx, d.public)
	}))
	return d
}

// impatient gives the body of each request so much time to arrive, so that a peer which trickles bytes cannot hold a handler. The
// limit ends with the body: net/http then reads on without one, to notice a caller that leaves.
func impatient(limit time.Duration, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(limit)) // not supported: no network behind w
		next.ServeHTTP(w, r)
	})
}

// ready makes the ready line: what is served, and where things are.
func ready(what, place string) func(*doors) program.Ready {
	return func(d *doors) program.Ready {
		return func() string {
			return fmt.Sprintf("%s http://%s, admin http://%s, %s", what, d.public.Address(), d.admin.Address(), place)
		}
	}
}
