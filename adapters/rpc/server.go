package rpc

import (
	"log/slog"
	"net/http"
	"time"
)

// Settings of the HTTP server, chosen so that no peer can hold more than its share.
const (
	readHeaderTimeout = 5 * time.Second
	idleTimeout       = 120 * time.Second
	maxHeaderBytes    = 16 << 10
	// maxConcurrentStreams bounds what one HTTP/2 connection can have in flight: each stream costs a handler and
	// up to one message of memory. A client with many waits uses one Attach stream, or more connections.
	maxConcurrentStreams = 250
	maxReadFrameSize     = 64 << 10
	// pings find a dead peer under its streams.
	sendPingTimeout  = 15 * time.Second
	pingTimeout      = 5 * time.Second
	writeByteTimeout = 10 * time.Second
)

// NewServer returns an http.Server with the settings for h: HTTP/1.1 and cleartext HTTP/2 on the same port. There is
// no write timeout, since waits and streams are long; the handler bounds each message instead.
// The server's own complaints about peers go to logger at level debug: they are the peers' doing.
func NewServer(h http.Handler, logger *slog.Logger) *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler:           h,
		Protocols:         &protocols,
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxConcurrentStreams,
			MaxReadFrameSize:     maxReadFrameSize,
			SendPingTimeout:      sendPingTimeout,
			PingTimeout:          pingTimeout,
			WriteByteTimeout:     writeByteTimeout,
		},
		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
}
