package rpc_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/adapters/rpc"
	"github.com/fencelock/fencelock/contracts/api/fencelock/v1/fencelockv1connect"
)

func TestServerSettings(t *testing.T) {
	t.Parallel()
	s := rpc.NewServer(http.NotFoundHandler(), slog.New(slog.DiscardHandler))
	if s.ReadHeaderTimeout != 5*time.Second || s.IdleTimeout != 120*time.Second || s.MaxHeaderBytes != 16<<10 {
		t.Errorf("limits of HTTP/1.1: %v %v %d", s.ReadHeaderTimeout, s.IdleTimeout, s.MaxHeaderBytes)
	}
	if s.ReadTimeout != 0 || s.WriteTimeout != 0 {
		t.Error("a fixed read or write timeout would cut waits and streams")
	}
	if h := s.HTTP2; h.MaxConcurrentStreams != 250 || h.SendPingTimeout == 0 || h.PingTimeout == 0 || h.WriteByteTimeout == 0 {
		t.Errorf("limits of HTTP/2: %+v", h)
	}
	if p := s.Protocols; !p.HTTP1() || !p.UnencryptedHTTP2() {
		t.Errorf("protocols: %v", p)
	}
}

// talk sends text on a fresh connection and returns the status of the first answer, 0 if the connection was closed
// without one, and what follows.
func (f *fixture) talk(t *testing.T, text string) (status int, rest string) {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", f.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(eventually)); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.WriteString(conn, text) }() // the server may stop reading first
	reader := bufio.NewReader(conn)
	line, err := reader.ReadString('\n')
	if err != nil {
		return 0, ""
	}
	fields := strings.Fields(line)
	if len(fields) < 2 {
		t.Fatalf("answer %q", line)
	}
	if status, err = strconv.Atoi(fields[1]); err != nil {
		t.Fatalf("answer %q", line)
	}
	all, _ := io.ReadAll(reader)
	return status, string(all)
}

func TestRow41TooManyHeaders(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var many strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&many, "X-H%d: v\r\n", i)
	}
	for name, headers := range map[string]string{
		"1 MiB": "X-Large: " + strings.Repeat("x", 1<<20) + "\r\n", "10,000": many.String(),
	} {
		before := f.snapshot(t)
		status, _ := f.talk(t, "POST "+fencelockv1connect.LockServiceAcquireProcedure+" HTTP/1.1\r\nHost: x\r\n"+headers+"\r\n")
		if status != http.StatusRequestHeaderFieldsTooLarge && status != 0 {
			t.Errorf("%s of headers: status %d, want 431 or a closed connection", name, status)
		}
		if f.snapshot(t) != before {
			t.Errorf("%s of headers changed the store", name)
		}
	}
}

// TestRow42NothingIsSmuggled: whatever a request with two lengths is answered, the request hidden in it is not served.
func TestRow42NothingIsSmuggled(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	open := `{"owner":"smuggled"}`
	hidden := "POST " + fencelockv1connect.SessionServiceOpenSessionProcedure + " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" +
		"Content-Length: " + strconv.Itoa(len(open)) + "\r\n\r\n" + open
	head := "POST " + fencelockv1connect.LockServiceInspectProcedure + " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
	before := f.snapshot(t)
	for name, request := range map[string]string{
		"chunked and a length that covers the hidden request": head + "Transfer-Encoding: chunked\r\nContent-Length: " +
			strconv.Itoa(len("0\r\n\r\n"+hidden)) + "\r\nConnection: close\r\n\r\n0\r\n\r\n" + hidden,
		"two different lengths": head + "Content-Length: 0\r\nContent-Length: " + strconv.Itoa(len(hidden)) + "\r\n\r\n" + hidden,
		"a length with a sign":  head + "Content-Length: +0\r\n\r\n" + hidden,
		"an unknown coding":     head + "Transfer-Encoding: xchunked\r\n\r\n" + hidden,
	} {
		status, rest := f.talk(t, request)
		if strings.Contains(rest, "smuggled") || f.snapshot(t) != before {
			t.Errorf("%s: status %d and the hidden request was served: %s", name, status, rest)
		}
	}
}

func TestRow42OldHTTPIsServedOrRefusedButNeverConfused(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	body := `{"key":"free"}`
	status, rest := f.talk(t, "POST "+fencelockv1connect.LockServiceInspectProcedure+" HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: "+
		strconv.Itoa(len(body))+"\r\n\r\n"+body)
	if status != http.StatusOK || !strings.Contains(rest, `"held":false`) {
		t.Errorf("HTTP/1.0: %d %s", status, rest)
	}
	if status, _ = f.talk(t, "POST / HTTP/9.9\r\n\r\n"); status != http.StatusHTTPVersionNotSupported && status != http.StatusBadRequest {
		t.Errorf("HTTP/9.9: %d", status)
	}
}

// TestABodyThatTricklesIsCut: a peer cannot hold a handler by sending its body slowly.
func TestABodyThatTricklesIsCut(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *rpc.Config) { c.Limits.BodyTime = 50 * time.Millisecond })
	status, rest := f.talk(t, "POST "+fencelockv1connect.LockServiceInspectProcedure+
		" HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
	if status != http.StatusGatewayTimeout || strings.Contains(rest, "127.0.0.1") {
		t.Errorf("half a body: %d %s; want 504 and no address", status, rest)
	}
}

// TestAWaitOutlivesTheLimitOnItsBody: the limit on reading must end once the body is here.
func TestAWaitOutlivesTheLimitOnItsBody(t *testing.T) {
	t.Parallel()
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http2 %t", http2), func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, func(c *rpc.Config) { c.Limits.BodyTime = 50 * time.Millisecond })
			c := f.client(t, protocol{http2: http2})
			c.acquire(t, c.open(t), heldKey, "r0")
			waiting := c.open(t)
			ctx, cancel := context.WithTimeout(t.Context(), eventually)
			defer cancel()
			answer, err := c.locks.Acquire(ctx, requestWait(waiting, 300*time.Millisecond))
			if err != nil || answer.Msg.GetHeld() == nil {
				t.Errorf("the wait ended with %v, %v; want held", answer, err)
			}
		})
	}
}
