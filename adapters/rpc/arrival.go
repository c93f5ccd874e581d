package rpc

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/fencelock/fencelock/core/port"
)

// arrival is what is known about a request before its body is read.
type arrival struct {
	// at is the clock's reading.
	at time.Duration
	// conn sets deadlines on this request's own reads and writes.
	conn *http.ResponseController
}

type arrivalKey struct{}

// stampArrival notes when a request came, and gives its body until bodyLimit to arrive, so that a peer which
// trickles bytes cannot hold a handler. The limit ends with the body: net/http reads on without a deadline to notice
// a client that leaves (HTTP/1.1), and a stream of HTTP/2 ends only its body.
func stampArrival(clock port.Clock, bodyLimit time.Duration, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := &arrival{at: clock.Elapsed(), conn: http.NewResponseController(w)}
		_ = a.conn.SetReadDeadline(time.Now().Add(bodyLimit)) // not supported: no network behind w, nothing to limit
		r = r.WithContext(context.WithValue(r.Context(), arrivalKey{}, a))
		r.Body = body{r.Body}
		next.ServeHTTP(w, r)
	})
}

// body keeps addresses out of what the peer is told about a limit on its body.
type body struct{ io.ReadCloser }

// Read implements io.Reader.
func (b body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = os.ErrDeadlineExceeded
	}
	return n, err
}

// arrivalOf returns the note of stampArrival, which every request carries.
func arrivalOf(ctx context.Context) *arrival {
	a, _ := ctx.Value(arrivalKey{}).(*arrival)
	return a
}

// readBefore bounds the next reads.
func (a *arrival) readBefore(limit time.Duration) { _ = a.conn.SetReadDeadline(time.Now().Add(limit)) }

// stopReading makes a blocked read return now.
func (a *arrival) stopReading() { _ = a.conn.SetReadDeadline(time.Now().Add(-time.Second)) }

// sender bounds each write of one stream: a peer that does not take a message within the limit loses
// the stream. A plain write deadline would have to be set anew, through the connection's own
// goroutine, for each message, or would end idle streams.
type sender struct {
	conn  *http.ResponseController
	limit time.Duration
	timer *time.Timer

	mu      sync.Mutex
	writing bool
}

func newSender(a *arrival, limit time.Duration) *sender {
	s := &sender{conn: a.conn, limit: limit}
	s.timer = time.AfterFunc(time.Hour, s.abort)
	s.timer.Stop()
	return s
}

// send runs write, which must be one write of a message.
func (s *sender) send(write func() error) error {
	s.setWriting(true)
	s.timer.Reset(s.limit)
	err := write()
	s.timer.Stop()
	s.setWriting(false) // after this, a late abort does nothing: the response may be gone
	return err
}

func (s *sender) setWriting(on bool) {
	s.mu.Lock()
	s.writing = on
	s.mu.Unlock()
}

func (s *sender) abort() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writing {
		_ = s.conn.SetWriteDeadline(time.Now().Add(-time.Second))
	}
}
