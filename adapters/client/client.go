package client

import (
	"context"
	"net"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	v1 "github.com/fencelock/fencelock/contracts/api/fencelock/v1"
	"github.com/fencelock/fencelock/contracts/api/fencelock/v1/fencelockv1connect"
	"github.com/fencelock/fencelock/core/lock"
)

// baseURL stands for whichever endpoint the pool prefers.
const baseURL = "http://fencelock"

// Client talks to the lock service. It is safe for concurrent use; one per
// process is enough, and cheapest: its sessions share one stream.
type Client struct {
	cfg        config
	pool       *pool
	link       *link
	sessionRPC fencelockv1connect.SessionServiceClient
	lockRPC    fencelockv1connect.LockServiceClient
	adminRPC   fencelockv1connect.AdminServiceClient

	// ctx is the life of everything that the client runs; Close ends it.
	ctx     context.Context //nolint:containedctx // this type is that life
	stop    context.CancelFunc
	loops   sync.WaitGroup // keepalives, watchers, the stream
	tidying sync.WaitGroup // bounded clean-ups

	mu       sync.Mutex
	closed   bool
	sessions map[string]*Session // by the id's text
}

// New returns a client of the service at the endpoints: "http://host:port",
// "https://host:port", or "host:port" for the former. The first endpoint is
// preferred until it fails. No connection is opened yet. Bad endpoints and
// options are [lock.ErrInvalid].
func New(endpoints []string, opts ...Option) (*Client, error) {
	cfg, err := newConfig(opts)
	if err != nil {
		return nil, err
	}
	// The client lives until Close, not as long as any caller's context.
	life, stop := context.WithCancel(context.Background())
	cfg.dial = bounded(life, cfg.tryTimeout(), cfg.dial)
	p, err := newPool(endpoints, cfg)
	if err != nil {
		stop()
		return nil, err
	}
	c := &Client{
		cfg:        cfg,
		pool:       p,
		sessionRPC: fencelockv1connect.NewSessionServiceClient(p, baseURL, plain()),
		lockRPC:    fencelockv1connect.NewLockServiceClient(p, baseURL, plain()),
		adminRPC:   fencelockv1connect.NewAdminServiceClient(p, baseURL, plain()),
		sessions:   map[string]*Session{},
		ctx:        life,
		stop:       stop,
	}
	c.link = &link{client: c}
	return c, nil
}

// plain asks for answers that are not compressed: they are too small to gain from it.
func plain() connect.ClientOption { return connect.WithAcceptCompression("gzip", nil, nil) }

// bounded ends a dial with the client and after a time: a transport goes on
// dialling for a request that has long been given up.
func bounded(life context.Context, patience time.Duration, dial DialFunc) DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		defer context.AfterFunc(life, cancel)()
		return dial(ctx, network, address)
	}
}

// Sessions returns the generated client, for single calls beside the SDK's own
// sessions. A request that never left goes on to the next endpoint; a call whose
// fate is unknown is not repeated. [Translate] rebuilds the service's errors.
func (c *Client) Sessions() fencelockv1connect.SessionServiceClient { return c.sessionRPC }

// Locks is like [Client.Sessions] for locks.
func (c *Client) Locks() fencelockv1connect.LockServiceClient { return c.lockRPC }

// Admin is like [Client.Sessions] for operators.
func (c *Client) Admin() fencelockv1connect.AdminServiceClient { return c.adminRPC }

// OpenSession opens a session and keeps it alive until [Session.Close], loss, or
// [Client.Close]. owner says who asks, for people and logs. Errors:
// [lock.ErrInvalid] (owner, TTL, metadata), [lock.ErrDenied],
// [lock.ErrTooManyWaiters] (a limit), and retryable ones once the call timeout is over.
func (c *Client) OpenSession(ctx context.Context, owner string, opts ...SessionOption) (*Session, error) {
	var cfg sessionConfig
	for _, opt := range opts {
		opt.applySession(&cfg)
	}
	return c.openSession(ctx, owner, cfg)
}

func (c *Client) openSession(ctx context.Context, owner string, cfg sessionConfig) (*Session, error) {
	req, err := openRequest(owner, cfg)
	if err != nil {
		return nil, err
	}
	var s *Session
	err = c.retry(ctx, func(ctx context.Context) error {
		// A repeated open may leave a session behind that nobody knows. It holds nothing and dies.
		sent := c.now()
		resp, err := c.sessionRPC.OpenSession(ctx, connect.NewRequest(req))
		if err != nil {
			return Translate(err)
		}
		s, err = c.adopt(resp.Msg.GetSession(), sent)
		return err
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

func openRequest(owner string, cfg sessionConfig) (*v1.OpenSessionRequest, error) {
	if _, err := lock.NewOwner(owner); err != nil {
		return nil, err
	}
	if err := lock.CheckMetadata(cfg.metadata); err != nil {
		return nil, err
	}
	req := &v1.OpenSessionRequest{Owner: owner, Metadata: cfg.metadata}
	if cfg.ttl != nil {
		ttl, err := lock.RoundTTL("ttl", *cfg.ttl)
		if err != nil {
			return nil, err
		}
		req.Ttl = durationpb.New(ttl)
	}
	return req, nil
}

// adopt starts to keep an opened session alive.
func (c *Client) adopt(opened *v1.Session, sent time.Duration) (*Session, error) {
	id, err := lock.ParseSessionID(opened.GetId())
	if err != nil {
		return nil, errMalformed
	}
	s := newSession(c, id, opened.GetTtl().AsDuration(), sent)
	if s.Deadline() <= 0 {
		return nil, lock.Contention("the session was opened too slowly to be of use", false, nil)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errClosed
	}
	c.sessions[id.Reveal()] = s
	c.loops.Go(s.keepAlive)
	c.loops.Go(s.watch)
	c.link.start()
	return s, nil
}

// session returns a live session of this client, or nil.
func (c *Client) session(id string) *Session {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sessions[id]
}

func (c *Client) forget(s *Session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.sessions, s.id.Reveal())
}

// all returns the live sessions.
func (c *Client) all() []*Session {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]*Session, 0, len(c.sessions))
	for _, s := range c.sessions {
		all = append(all, s)
	}
	return all
}

// greet makes every session send a heartbeat now.
func (c *Client) greet() {
	for _, s := range c.all() {
		s.poke()
	}
}

// now reads the clock of all deadlines.
func (c *Client) now() time.Duration { return c.cfg.clock.Elapsed() }

// Close ends everything that the client runs and waits for it, clean-ups
// included (at most the call timeout). Sessions that are still open end for this
// process at once, but are not closed on the server, where work that they protect may
// still be going on: they die there in their own time. Close them first to
// free their locks at once. Do not call it from an OnLost callback.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	for _, s := range c.all() {
		s.end(errClosed, true)
	}
	c.tidying.Wait()
	c.stop()
	c.loops.Wait()
	c.pool.close()
	return nil
}
