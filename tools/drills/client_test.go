package drills_test

import (
	"io"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/fencelock/fencelock/adapters/client"
	"github.com/fencelock/fencelock/core/clock"
	"github.com/fencelock/fencelock/tools/drills"
	"github.com/fencelock/fencelock/tools/testenv"
)

// A session is dead for everyone no later than this after its TTL (clause SESS-02).
const deathLag = 2 * time.Second

func TestFrozenClientLosesItsSessionInTime(t *testing.T) {
	t.Parallel()
	for _, k := range each() {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			store := k.open(t)
			s := startServer(t, store)
			network := observe(t, s.Addr)
			holder := drills.Start(t, nil, programs.Path(t, "lockctl"), "--server", "http://"+network.addr,
				"run", "--key", "hot", "--ttl", mortal.String(), "--", "sh", "-c", "echo holding; exec sleep 1000")
			holder.AwaitOutput(t, "holding")
			waiter := openSession(t, dial(t, s.URL()), "waiter", mortal)
			granted := make(chan time.Time, 1)
			go func() {
				if _, err := waiter.Acquire(t.Context(), "hot", client.WithWait(patience)); err != nil {
					t.Errorf("waiter: %v", err)
				}
				granted <- time.Now()
			}()
			eventually(t, "the waiter stands in line", func() bool {
				seen := post(t, s, "LockService/Inspect", `{"key":"hot"}`)
				return dig(seen, "waiters") == 1.0
			})
			holder.Signal(syscall.SIGSTOP)
			at := within(t, "the waiter gets the frozen client's lock", granted)
			// No heartbeat is younger than the last bytes that the client sent.
			took := at.Sub(time.Unix(0, network.last.Load()))
			t.Logf("TTL %v: the waiter was granted %v after the client's last word", mortal, took)
			if took > mortal+deathLag {
				t.Errorf("granted %v after the client's last word, promised %v", took, mortal+deathLag)
			}
		})
	}
}

// observer is a network that notes when the client last said something.
type observer struct {
	addr string
	last atomic.Int64 // Unix nanoseconds
}

// observe relays connections to the server until the test ends.
func observe(t *testing.T, server string) *observer {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listen: %v", err)
	}
	o := &observer{addr: listener.Addr().String()}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			upstream, err := new(net.Dialer).DialContext(t.Context(), "tcp", server)
			if err != nil {
				_ = client.Close()
				continue
			}
			go func() { _, _ = io.Copy(upstream, io.TeeReader(client, o)); _ = upstream.Close() }()
			go func() { _, _ = io.Copy(client, upstream); _ = client.Close() }()
		}
	}()
	return o
}

// Write implements io.Writer for what passes.
func (o *observer) Write(b []byte) (int, error) {
	o.last.Store(time.Now().UnixNano())
	return len(b), nil
}

func TestClientDeclaresLossBeforeTheStoreFreesTheLock(t *testing.T) {
	t.Parallel()
	for _, k := range each() {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			store := k.open(t)
			faults := map[string]func(*testenv.Proxy){
				"answers are dropped": func(p *testenv.Proxy) { p.HoldAnswers() },
				"answers are late":    func(p *testenv.Proxy) { p.Delay(mortal) },
				"network is cut":      func(p *testenv.Proxy) { p.Cut() },
			}
			s := startServer(t, store)
			for name, fault := range faults {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					key := strings.ReplaceAll(name, " ", "-")
					network := testenv.NewProxy(t, s.Addr)
					held, err := openSession(t, dial(t, "http://"+network.Addr), "holder", mortal).Acquire(t.Context(), key)
					if err != nil {
						t.Fatalf("acquire: %v", err)
					}
					lost, freed := make(chan time.Duration, 1), make(chan time.Duration, 1)
					go func() {
						<-held.Context().Done()
						lost <- clock.Boot{}.Elapsed()
					}()
					waiter := openSession(t, dial(t, s.URL()), "waiter", mortal)
					go func() {
						if _, err := waiter.Acquire(t.Context(), key, client.WithWait(patience)); err != nil {
							t.Errorf("waiter: %v", err)
						}
						freed <- clock.Boot{}.Elapsed()
					}()
					fault(network)
					declared := within(t, "the holder declares loss", lost)
					granted := within(t, "the store frees the lock", freed)
					t.Logf("loss declared %v before the next grant", granted-declared)
					if declared >= granted {
						t.Errorf("the next holder was granted %v before the old one declared loss", declared-granted)
					}
					if err := held.CheckStillHeld(); err == nil {
						t.Error("the deposed holder still believes")
					}
				})
			}
		})
	}
}
