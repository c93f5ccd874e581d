package client

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/core/lock"
)

// Transport limits.
const (
	idleTimeout = 90 * time.Second
	// pingAfter and pingTimeout notice a dead HTTP/2 connection: no byte for the
	// first, no answer to a ping for the second.
	pingAfter    = 2 * time.Second
	pingTimeout  = 2 * time.Second
	writeTimeout = 5 * time.Second
	idlePerHost  = 64
)

// pool sends unary requests to the preferred endpoint and prefers the next one
// after a failure. Everybody prefers the first endpoint while it works: clients
// that share a server share its queue, which is first come, first served.
type pool struct {
	endpoints []*url.URL
	preferred atomic.Int64
	transport *http.Transport
	bearer    string
}

func newPool(endpoints []string, cfg config) (*pool, error) {
	p := &pool{bearer: cfg.bearer, transport: unaryTransport(cfg)}
	for _, text := range endpoints {
		if !strings.Contains(text, "://") {
			text = "http://" + text
		}
		u, err := url.Parse(text)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, lock.Invalid("endpoints", "must be http://host:port or https://host:port")
		}
		u.Path = strings.TrimSuffix(u.Path, "/")
		p.endpoints = append(p.endpoints, u)
	}
	if len(p.endpoints) == 0 {
		return nil, lock.Invalid("endpoints", "must name at least one")
	}
	return p, nil
}

// unaryTransport speaks HTTP/1.1 in the clear, and what TLS negotiates.
func unaryTransport(cfg config) *http.Transport {
	t := baseTransport(cfg)
	t.Protocols.SetHTTP1(true)
	t.Protocols.SetHTTP2(true)
	return t
}

// streamTransport speaks HTTP/2 only. A transport that may also speak HTTP/1
// does not speak HTTP/2 in the clear, so the stream needs its own.
func streamTransport(cfg config) *http.Transport {
	t := baseTransport(cfg)
	t.Protocols.SetHTTP2(true)
	t.Protocols.SetUnencryptedHTTP2(true)
	return t
}

func baseTransport(cfg config) *http.Transport {
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         cfg.dial,
		TLSClientConfig:     cfg.tls.Clone(),
		TLSHandshakeTimeout: cfg.tryTimeout(),
		MaxIdleConnsPerHost: idlePerHost,
		IdleConnTimeout:     idleTimeout,
		Protocols:           new(http.Protocols),
		HTTP2: &http.HTTP2Config{
			SendPingTimeout:  pingAfter,
			PingTimeout:      pingTimeout,
			WriteByteTimeout: writeTimeout,
		},
	}
}

func (p *pool) current() int { return int(p.preferred.Load()) }

// fail moves the preference on from an endpoint, once for all who saw it fail.
func (p *pool) fail(endpoint int) {
	next := (endpoint + 1) % len(p.endpoints)
	if p.preferred.CompareAndSwap(int64(endpoint), int64(next)) {
		// A connection whose call timed out may be dead; do not pick it again.
		p.transport.CloseIdleConnections()
	}
}

// Do implements [connect.HTTPClient]. A request that provably did not
// leave goes to the next endpoint; any other failure is the caller's to judge, and the
// next call goes to the next endpoint.
func (p *pool) Do(req *http.Request) (*http.Response, error) {
	for tries := 1; ; tries++ {
		endpoint := p.current()
		resp, err := p.transport.RoundTrip(p.address(req, endpoint))
		if err == nil {
			if resp.StatusCode == http.StatusServiceUnavailable {
				p.fail(endpoint)
			}
			return resp, nil
		}
		if errors.Is(req.Context().Err(), context.Canceled) {
			return nil, err //nolint:wrapcheck // Connect judges it
		}
		p.fail(endpoint)
		if tries >= len(p.endpoints) || !notSent(err) || req.GetBody == nil || req.Context().Err() != nil {
			return nil, err //nolint:wrapcheck // Connect judges it
		}
		body, rewindErr := req.GetBody()
		if rewindErr != nil {
			return nil, err //nolint:wrapcheck // Connect judges it
		}
		req = req.Clone(req.Context())
		req.Body = body
	}
}

// address points a copy of the request at an endpoint.
func (p *pool) address(req *http.Request, endpoint int) *http.Request {
	base := p.endpoints[endpoint]
	out := req.WithContext(req.Context())
	target := *req.URL
	target.Scheme, target.Host, target.Path = base.Scheme, base.Host, base.Path+req.URL.Path
	out.URL, out.Host = &target, base.Host
	if p.bearer != "" {
		out.Header = req.Header.Clone()
		out.Header.Set("Authorization", "Bearer "+p.bearer)
	}
	return out
}

func (p *pool) close() { p.transport.CloseIdleConnections() }

// pinned sends every request to one endpoint over one transport.
type pinned struct {
	pool      *pool
	endpoint  int
	transport *http.Transport
}

// Do implements [connect.HTTPClient].
func (p *pinned) Do(req *http.Request) (*http.Response, error) {
	return p.transport.RoundTrip(p.pool.address(req, p.endpoint)) //nolint:wrapcheck // Connect judges it
}
