package testenv_test

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/fencelock/fencelock/tools/testenv"
)

// short is a time within which an answer that is not held back would have come. A busy machine
// can only make a broken hold pass, never a right one fail.
const short = 100 * time.Millisecond

func TestProxyPassesEveryByteBothWays(t *testing.T) {
	t.Parallel()
	proxy := testenv.NewProxy(t, echo(t))
	sent := make([]byte, 4<<20)
	_, _ = rand.Read(sent)
	conn := dial(t, proxy)
	go func() {
		_, _ = conn.Write(sent)
		_ = conn.CloseWrite()
	}()
	got, err := io.ReadAll(conn)
	if err != nil || !bytes.Equal(got, sent) {
		t.Fatalf("read %d bytes and %v, want the %d that were sent", len(got), err, len(sent))
	}
}

func TestHeldAnswersComeWhenReleased(t *testing.T) {
	t.Parallel()
	seen := make(chan string, 1)
	proxy := testenv.NewProxy(t, serve(t, func(line string) { seen <- line }))
	conn := dial(t, proxy)
	ask(t, conn, "before\n", "before\n")
	arrived(t, seen, "before\n")

	proxy.HoldAnswers()
	send(t, conn, "held\n")
	arrived(t, seen, "held\n")
	silent(t, conn)
	proxy.ReleaseAnswers()
	receive(t, conn, "held\n")
}

func TestHeldRequestsArriveWhenReleased(t *testing.T) {
	t.Parallel()
	seen := make(chan string, 2)
	proxy := testenv.NewProxy(t, serve(t, func(line string) { seen <- line }))
	conn := dial(t, proxy)
	proxy.HoldRequests()
	send(t, conn, "held\n")
	select {
	case got := <-seen:
		t.Fatalf("upstream saw %q of a held request", got)
	case <-time.After(short):
	}
	proxy.ReleaseRequests()
	arrived(t, seen, "held\n")
	receive(t, conn, "held\n")
}

func TestHoldAlsoHoldsConnectionsThatComeLater(t *testing.T) {
	t.Parallel()
	proxy := testenv.NewProxy(t, echo(t))
	proxy.HoldAnswers()
	conn := dial(t, proxy)
	send(t, conn, "late\n")
	silent(t, conn)
	proxy.ReleaseAnswers()
	receive(t, conn, "late\n")
}

func TestCutBreaksAndRefusesUntilHealed(t *testing.T) {
	t.Parallel()
	proxy := testenv.NewProxy(t, echo(t))
	conn := dial(t, proxy)
	ask(t, conn, "before\n", "before\n")
	// A held connection is cut as well, and leaves nothing behind: see TestMain.
	proxy.HoldAnswers()
	send(t, conn, "held\n")
	proxy.Cut()
	if n, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("read %d bytes and error %v from a cut connection", n, err)
	}
	if late, err := net.Dial("tcp", proxy.Addr); err == nil {
		_ = late.Close()
		t.Fatal("a cut proxy accepted a connection")
	}
	proxy.ReleaseAnswers()
	proxy.Heal()
	ask(t, dial(t, proxy), "after\n", "after\n")
}

func TestDelayAddsToBothWays(t *testing.T) {
	t.Parallel()
	proxy := testenv.NewProxy(t, echo(t))
	conn := dial(t, proxy)
	proxy.Delay(short)
	start := time.Now()
	ask(t, conn, "slow\n", "slow\n")
	if took := time.Since(start); took < 2*short {
		t.Fatalf("an answer took %v, want at least %v", took, 2*short)
	}
	proxy.Delay(time.Hour)
	send(t, conn, "later\n")
	silent(t, conn)
	proxy.Delay(0)
	receive(t, conn, "later\n")
}

func TestProxyEndsAConnectionThatItsUpstreamRefuses(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := listener.Addr().String()
	_ = listener.Close()
	conn := dial(t, testenv.NewProxy(t, "http://"+nobody))
	if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("read ended with %v, want the end of the connection", err)
	}
}

// arrived waits until the upstream has seen the line.
func arrived(t *testing.T, seen <-chan string, want string) {
	t.Helper()
	select {
	case got := <-seen:
		if got != want {
			t.Fatalf("upstream saw %q, want %q", got, want)
		}
	case <-time.After(time.Minute):
		t.Fatalf("upstream never saw %q", want)
	}
}

// echo starts a server that answers each line with itself.
func echo(t *testing.T) string {
	t.Helper()
	return serve(t, func(string) {})
}

// serve starts an echo server that shows each line it reads.
func serve(t *testing.T, see func(line string)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go answer(conn, see)
		}
	}()
	return listener.Addr().String()
}

func answer(conn net.Conn, see func(string)) {
	defer conn.Close()
	lines := bufio.NewReader(conn)
	for {
		line, err := lines.ReadString('\n')
		if err == nil {
			see(line)
		}
		if _, failed := io.WriteString(conn, line); failed != nil || err != nil {
			return
		}
	}
}

// dial connects through the proxy; reads give up after a time that only a lost byte takes.
func dial(t *testing.T, proxy *testenv.Proxy) *net.TCPConn {
	t.Helper()
	conn, err := net.Dial("tcp", proxy.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	patient(t, conn)
	return conn.(*net.TCPConn)
}

func patient(t *testing.T, conn net.Conn) {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
}

func ask(t *testing.T, conn net.Conn, request, want string) {
	t.Helper()
	send(t, conn, request)
	receive(t, conn, want)
}

func send(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
}

func receive(t *testing.T, conn net.Conn, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != want {
		t.Fatalf("read %q and %v, want %q", got, err, want)
	}
}

// silent fails the test if anything arrives within a short time.
func silent(t *testing.T, conn net.Conn) {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(short)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("read ended with %v, want nothing to arrive", err)
	}
	patient(t, conn)
}
