package remote

import (
	"net"
	"net/http"
	"time"

	"connectrpc.com/connect"

	"github.com/fencelock/fencelock/apps/payout-executor/internal/payout"
)

// header is where the fencing token travels.
const header = "Fencelock-Token"

const (
	dialTimeout = 3 * time.Second
	idleTimeout = 90 * time.Second
	// maxAnswer bounds what a service may answer, in bytes: a page of 1000 payouts and more.
	maxAnswer = 16 << 20
)

// NewHTTPClient returns a client for both services; conns is how many calls run at once. Close its idle connections in the end.
func NewHTTPClient(conns int) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialContext:         (&net.Dialer{Timeout: dialTimeout}).DialContext,
			MaxIdleConnsPerHost: conns,
			IdleConnTimeout:     idleTimeout,
			TLSHandshakeTimeout: dialTimeout,
			DisableCompression:  true,
		},
		// To follow a redirect is to send the call again.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func options() []connect.ClientOption {
	return []connect.ClientOption{
		connect.WithAcceptCompression("gzip", nil, nil), // answers are too small to gain from it
		connect.WithReadMaxBytes(maxAnswer),
	}
}

// request is a message with the token that it is sent under.
func request[M any](token payout.Token, message *M) *connect.Request[M] {
	req := connect.NewRequest(message)
	req.Header().Set(header, token.Text)
	return req
}
