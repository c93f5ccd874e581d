package client_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/fencelock/fencelock/adapters/client"
	v1 "github.com/fencelock/fencelock/contracts/api/fencelock/v1"
	"github.com/fencelock/fencelock/contracts/parity/following"
	"github.com/fencelock/fencelock/contracts/parity/reference"
	"github.com/fencelock/fencelock/core/fence"
	"github.com/fencelock/fencelock/core/lock"
)

// depose takes a lock and has it revoked.
func depose(t *testing.T, c *client.Client, s *client.Session, key string) {
	t.Helper()
	if _, err := s.TryAcquire(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	revoke(t, c, key)
}

func revoke(t *testing.T, c *client.Client, key string) {
	t.Helper()
	_, err := c.Admin().Revoke(t.Context(), connect.NewRequest(&v1.RevokeRequest{Key: key, Operator: "op", Reason: "it is a test"}))
	if err != nil {
		t.Fatal(err)
	}
}

func listed(ctx context.Context, c *client.Client, namespace string) (all []lock.Revocation, err error) {
	for r, err := range c.Revocations(ctx, namespace) {
		if err != nil {
			return all, err
		}
		all = append(all, r)
	}
	return all, nil
}

// TestRevocationsAreListedToTheEnd: over several pages, the newest first, each once.
func TestRevocationsAreListedToTheEnd(t *testing.T) {
	t.Parallel()
	world := reference.New()
	t.Cleanup(world.Close)
	endpoint, _ := realServer(t, world)
	c := realClient(t, []string{endpoint})
	s, err := c.OpenSession(t.Context(), "deposed", client.WithTTL(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	const n = 250
	for i := range n {
		depose(t, c, s, fmt.Sprint("key-", i))
	}
	_, err = c.Admin().RaiseTokenFloor(t.Context(), connect.NewRequest(&v1.RaiseTokenFloorRequest{
		Above: 5000, Operator: "op", Reason: "it is a test",
	}))
	if err != nil {
		t.Fatal(err)
	}
	all, err := listed(t.Context(), c, "")
	if err != nil || len(all) != n+1 {
		t.Fatalf("%d records, %v", len(all), err)
	}
	if r := all[0]; !r.Key.IsZero() || r.Floor < 5000 || r.PreviousToken != 0 {
		t.Errorf("the raised floor: %+v", r)
	}
	for i, r := range all[1:] {
		if want := fmt.Sprint("default/key-", n-1-i); r.Key.String() != want {
			t.Fatalf("record %d is of %s, want %s", i, r.Key, want)
		}
		if r.ID == "" || r.Operator != "op" || r.Reason != "it is a test" || r.PreviousOwner != "deposed" ||
			r.PreviousToken <= 0 || r.Floor <= r.PreviousToken || r.At.IsZero() || r.At.After(time.Now()) || !r.PreviousSession.IsZero() {
			t.Fatalf("record %d: %+v", i, r)
		}
	}
	for range c.Revocations(t.Context(), "") {
		break // a listing that went on would panic
	}
	if other, err := listed(t.Context(), c, "elsewhere"); err != nil || len(other) != 1 {
		t.Errorf("another namespace: %v, %v", other, err)
	}
	if _, err := listed(t.Context(), c, "No Namespace"); !errors.Is(err, lock.ErrInvalid) {
		t.Errorf("no namespace: %v", err)
	}
}

// cable carries the connections of one client, and can be pulled.
type cable struct {
	mu     sync.Mutex
	pulled bool
	wires  []net.Conn
}

func (c *cable) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pulled {
		return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New("the cable is pulled")}
	}
	wire, err := new(net.Dialer).DialContext(ctx, network, address)
	if err == nil {
		c.wires = append(c.wires, wire)
	}
	return wire, err
}

func (c *cable) pull(out bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pulled = out
	for _, wire := range c.wires {
		_ = wire.Close()
	}
	c.wires = nil
}

// marks are a resource's, in memory.
type marks struct {
	mu      sync.Mutex
	highest map[string]lock.Token
}

func (m *marks) Advance(_ context.Context, resource string, token lock.Token, rule fence.Rule) (fence.Verdict, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !rule.Admits(token, m.highest[resource]) {
		return fence.Verdict{Highest: m.highest[resource]}, nil
	}
	m.highest[resource] = token
	return fence.Verdict{Admitted: true, Highest: token}, nil
}

// TestAResourceFollowsRevocations through the service: what was on record before it came, what comes, and what came
// while it was cut off. Being cut off refuses nobody.
func TestAResourceFollowsRevocations(t *testing.T) {
	t.Parallel()
	world := reference.New()
	t.Cleanup(world.Close)
	endpoint, _ := realServer(t, world)
	operators := realClient(t, []string{endpoint})
	s, err := operators.OpenSession(t.Context(), "holder", client.WithTTL(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	m := &marks{highest: map[string]lock.Token{}}
	guard := fence.New(m)
	hold := func(key string) lock.Token {
		t.Helper()
		l, err := s.TryAcquire(t.Context(), key)
		if err == nil {
			err = guard.Admit(t.Context(), key, l.Token())
		}
		if err != nil {
			t.Fatal(err)
		}
		return l.Token()
	}
	write := func(key string, token lock.Token) error { return guard.AdmitBy(t.Context(), fence.Equal, key, token) }

	before, during, cutOff := hold("before"), hold("during"), hold("cut-off")
	revoke(t, operators, "before")
	wire := &cable{}
	follower := realClient(t, []string{endpoint}, client.WithDialContext(wire.dial), client.WithCallTimeout(time.Second))
	reports := following.Start(t, func(ctx context.Context) iter.Seq2[lock.Revocation, error] { return follower.Revocations(ctx, "") }, m)
	reports.AwaitRaised(t, "before")
	revoke(t, operators, "during")
	reports.AwaitRaised(t, "during")
	for key, token := range map[string]lock.Token{"before": before, "during": during} {
		if err := write(key, token); !errors.Is(err, lock.ErrFencedOut) {
			t.Errorf("the holder deposed %s: %v", key, err)
		}
	}

	wire.pull(true)
	reports.Await(t, func(r following.Report) bool { return r.Resource == "" && lock.IsRetryable(r.Err) })
	revoke(t, operators, "cut-off")
	if err := write("cut-off", cutOff); err != nil {
		t.Errorf("while the follower is cut off: %v", err)
	}
	wire.pull(false)
	reports.AwaitRaised(t, "cut-off")
	if err := write("cut-off", cutOff); !errors.Is(err, lock.ErrFencedOut) {
		t.Errorf("once it is back: %v", err)
	}
	for _, key := range []string{"before", "during", "cut-off"} {
		if err := write(key, hold(key)); err != nil {
			t.Errorf("the next holder of %s: %v", key, err)
		}
	}
}
