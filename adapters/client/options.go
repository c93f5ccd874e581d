package client

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"github.com/fencelock/fencelock/core/clock"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

// Defaults of the options.
const (
	// DefaultSafetyMargin is the share of every guarantee that is not used.
	DefaultSafetyMargin = 0.30
	// DefaultCallTimeout bounds one call with all its retries.
	DefaultCallTimeout = 15 * time.Second
)

// triesPerCall divides the call timeout into the patience for one try, so
// that a silent endpoint leaves time for another one.
const triesPerCall = 3

// DialFunc opens a connection, like [net.Dialer.DialContext].
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// Option configures a [Client].
type Option func(*config)

type config struct {
	margin      float64
	clock       port.Clock
	callTimeout time.Duration
	tls         *tls.Config
	bearer      string
	dial        DialFunc
	unary       bool
	reckon      reckoner
}

func newConfig(opts []Option) (config, error) {
	cfg := config{
		margin:      DefaultSafetyMargin,
		clock:       clock.Boot{},
		callTimeout: DefaultCallTimeout,
		dial:        new(net.Dialer).DialContext,
		reckon:      reckon,
	}
	for _, opt := range opts {
		opt(&cfg)
	}
	if !(cfg.margin > 0 && cfg.margin < 1) {
		return config{}, lock.Invalid("safety_margin", "must be above 0 and below 1")
	}
	if cfg.callTimeout <= 0 {
		return config{}, lock.Invalid("call_timeout", "must be positive")
	}
	return cfg, nil
}

// tryTimeout is the patience for one try of a call.
func (c config) tryTimeout() time.Duration { return c.callTimeout / triesPerCall }

// WithSafetyMargin sets the share of every guarantee that is not used: above
// 0, below 1. It pays for clocks that run at different speeds and for the time
// that stopping the work takes. Default [DefaultSafetyMargin].
func WithSafetyMargin(share float64) Option { return func(c *config) { c.margin = share } }

// WithClock sets the clock of all deadlines. It must keep running while the
// machine is suspended and never go back. Default [clock.Boot].
func WithClock(clock port.Clock) Option { return func(c *config) { c.clock = clock } }

// WithCallTimeout bounds one call with all its retries, beyond any time spent
// waiting for a lock. Default [DefaultCallTimeout].
func WithCallTimeout(d time.Duration) Option { return func(c *config) { c.callTimeout = d } }

// WithTLS sets the TLS configuration of https endpoints.
func WithTLS(cfg *tls.Config) Option { return func(c *config) { c.tls = cfg } }

// WithBearerToken sends an Authorization header with every request.
func WithBearerToken(token string) Option { return func(c *config) { c.bearer = token } }

// WithDialContext replaces how connections are opened.
func WithDialContext(dial DialFunc) Option { return func(c *config) { c.dial = dial } }

// WithUnaryOnly never opens the multiplexed stream: for networks that are known
// not to carry it. Loss is then learned from heartbeats and deadlines alone.
func WithUnaryOnly() Option { return func(c *config) { c.unary = true } }

// SessionOption configures [Client.OpenSession].
type SessionOption interface {
	DoOption
	applySession(*sessionConfig)
}

// AcquireOption configures [Session.TryAcquire] and [Session.Acquire].
type AcquireOption interface {
	DoOption
	applyAcquire(*acquireConfig)
}

// DoOption configures [Client.Do]; every [SessionOption] and [AcquireOption] is one.
type DoOption interface{ applyDo(*doConfig) }

type sessionConfig struct {
	ttl      *time.Duration
	metadata map[string]string
}

type acquireConfig struct {
	namespace string
	wait      *time.Duration
	lease     *time.Duration
	metadata  map[string]string
}

type doConfig struct {
	owner   string
	session sessionConfig
	acquire acquireConfig
}

type sessionOption func(*sessionConfig)

func (f sessionOption) applySession(c *sessionConfig) { f(c) }
func (f sessionOption) applyDo(c *doConfig)           { f(&c.session) }

type acquireOption func(*acquireConfig)

func (f acquireOption) applyAcquire(c *acquireConfig) { f(c) }
func (f acquireOption) applyDo(c *doConfig)           { f(&c.acquire) }

type doOption func(*doConfig)

func (f doOption) applyDo(c *doConfig) { f(c) }

// WithTTL asks for a time to live of the session: 2s to 10m, rounded up to whole
// seconds. Default: the server's.
func WithTTL(d time.Duration) SessionOption {
	return sessionOption(func(c *sessionConfig) { c.ttl = &d })
}

// WithSessionMetadata attaches at most 16 pairs and 4 KiB to the session, for people.
func WithSessionMetadata(m map[string]string) SessionOption {
	return sessionOption(func(c *sessionConfig) { c.metadata = m })
}

// WithNamespace sets the namespace of the key. Default [lock.DefaultNamespace].
func WithNamespace(namespace string) AcquireOption {
	return acquireOption(func(c *acquireConfig) { c.namespace = namespace })
}

// WithWait bounds how long [Session.Acquire] stands in line; 0 means not at
// all. Default: as long as the context allows.
func WithWait(d time.Duration) AcquireOption {
	return acquireOption(func(c *acquireConfig) { c.wait = &d })
}

// WithLease caps the life of the grant, unless extended: 2s to 10m. Default: the server's,
// which usually is as long as the session lives; [Lock.Deadline] tells.
func WithLease(d time.Duration) AcquireOption {
	return acquireOption(func(c *acquireConfig) { c.lease = &d })
}

// WithMetadata attaches at most 16 pairs and 4 KiB to the grant, for people.
func WithMetadata(m map[string]string) AcquireOption {
	return acquireOption(func(c *acquireConfig) { c.metadata = m })
}

// WithOwner sets the owner label of the session that [Client.Do] opens.
// Default: host name and process id.
func WithOwner(owner string) DoOption { return doOption(func(c *doConfig) { c.owner = owner }) }
