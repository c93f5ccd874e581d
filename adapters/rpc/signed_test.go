package rpc_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fencelock/fencelock/adapters/rpc"
	fencelockv1 "github.com/fencelock/fencelock/contracts/api/fencelock/v1"
	"github.com/fencelock/fencelock/core/fence"
	"github.com/fencelock/fencelock/core/lock"
)

// signing is a server that signs, and who believes it.
type signing struct {
	*fixture
	*fence.Verifier
}

func newSigning(t *testing.T) signing {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	verifier, err := fence.NewVerifier(public)
	if err != nil {
		t.Fatal(err)
	}
	return signing{newFixture(t, func(cfg *rpc.Config) { cfg.Signer = fence.NewSigner(private) }), verifier}
}

// check looks that a grant carries its token in the signed form, for its own key and session.
func (s signing) check(t *testing.T, way, session string, g *fencelockv1.Grant) {
	t.Helper()
	key, err := lock.NewKey(g.GetNamespace(), g.GetKey())
	if err != nil {
		t.Fatalf("%s: %v", way, err)
	}
	token, err := s.Read(key, g.GetSignedToken())
	if err != nil || int64(token) != g.GetToken() {
		t.Errorf("%s: %q is token %d, %v; want %d", way, g.GetSignedToken(), token, err, g.GetToken())
	}
	id, err := lock.ParseSessionID(session)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(g.GetSignedToken(), "."+id.Hash()+".") {
		t.Errorf("%s: %q is not of session %s", way, g.GetSignedToken(), id.Hash())
	}
	other, err := lock.NewKey(g.GetNamespace(), g.GetKey()+"x")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Read(other, g.GetSignedToken()); lock.CodeOf(err) != lock.CodeDenied {
		t.Errorf("%s: at another key: %v", way, err)
	}
}

// wrong is a digest that no set of grants has.
func wrong() *uint64 { return new(uint64(1)) }

func TestAHolderGetsTheSignedTokenByUnaryCalls(t *testing.T) {
	t.Parallel()
	for _, p := range protocols() {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			s := newSigning(t)
			c := s.client(t, p)
			session, next := c.open(t), c.open(t)
			grant := c.acquire(t, session, "a", "r1")
			s.check(t, "acquire", session, grant)
			s.check(t, "the same request again", session, c.acquire(t, session, "a", "r1"))
			extended, err := c.locks.Extend(t.Context(), connect.NewRequest(&fencelockv1.ExtendRequest{
				Key: "a", SessionId: session, Token: grant.GetToken(),
			}))
			if err != nil {
				t.Fatal(err)
			}
			s.check(t, "extend", session, extended.Msg.GetGrant())
			beat, err := c.sessions.Heartbeat(t.Context(), connect.NewRequest(&fencelockv1.HeartbeatRequest{SessionId: session, HeldDigest: wrong()}))
			if err != nil || len(beat.Msg.GetHeld().GetGrants()) != 1 {
				t.Fatalf("heartbeat: %v, %v", beat, err)
			}
			s.check(t, "heartbeat", session, beat.Msg.GetHeld().GetGrants()[0])
			watch, err := c.sessions.WatchSession(t.Context(), connect.NewRequest(&fencelockv1.WatchSessionRequest{SessionId: session}))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = watch.Close() }()
			for watch.Receive() && watch.Msg().GetEvent().GetHeld() == nil {
			}
			s.check(t, "watch", session, watch.Msg().GetEvent().GetHeld().GetGrants()[0])
			s.check(t, "handoff", next, s.handedOver(t, c, session, next, grant.GetToken()))
		})
	}
}

// handedOver is the grant of one who waited for "a".
func (s signing) handedOver(t *testing.T, c api, from, to string, token int64) *fencelockv1.Grant {
	t.Helper()
	granted := make(chan *fencelockv1.Grant, 1)
	go func() {
		answer, err := c.locks.Acquire(t.Context(), connect.NewRequest(&fencelockv1.AcquireRequest{
			Key: "a", SessionId: to, RequestId: "r2", Wait: durationpb.New(eventually),
		}))
		if err != nil {
			t.Errorf("wait: %v", err)
			answer = connect.NewResponse(&fencelockv1.AcquireResponse{})
		}
		granted <- answer.Msg.GetGrant()
	}()
	waitFor(t, "it stands in line", func() bool { return s.waiters() == 1 })
	c.release(t, from, "a", token)
	return next(t, granted)
}

func TestAHolderGetsTheSignedTokenByTheStream(t *testing.T) {
	t.Parallel()
	s := newSigning(t)
	c := s.plain(t)
	session, waiting := c.open(t), c.open(t)
	w := c.attach(t)
	result := func(op *fencelockv1.Operation) *fencelockv1.OperationResult {
		w.send(t, op)
		return next(t, w.results)
	}
	grant := result(opAcquire(1, session, "a", "r1", 0)).GetAcquire().GetGrant()
	s.check(t, "acquire", session, grant)
	s.check(t, "the same request again", session, result(opAcquire(2, session, "a", "r1", 0)).GetAcquire().GetGrant())
	s.check(t, "extend", session, result(&fencelockv1.Operation{Id: 3, Call: &fencelockv1.Operation_Extend{
		Extend: &fencelockv1.ExtendRequest{Key: "a", SessionId: session, Token: grant.GetToken()},
	}}).GetExtend().GetGrant())
	beat := opHeartbeat(4, session)
	beat.GetHeartbeat().HeldDigest = wrong()
	s.check(t, "heartbeat", session, result(beat).GetHeartbeat().GetHeld().GetGrants()[0])
	news := w.event(t, func(e *fencelockv1.SessionEvent) bool { return len(e.GetHeld().GetGrants()) > 0 })
	s.check(t, "news", session, news.GetHeld().GetGrants()[0])
	w.send(t, opAcquire(5, waiting, "a", "r2", time.Minute))
	waitFor(t, "it stands in line", func() bool { return s.waiters() == 1 })
	c.release(t, session, "a", grant.GetToken())
	s.check(t, "handoff", waiting, next(t, w.results).GetAcquire().GetGrant())
}

// TestNobodyElseGetsTheSignedToken looks at every answer that shows a grant to whoever asks.
func TestNobodyElseGetsTheSignedToken(t *testing.T) {
	t.Parallel()
	s := newSigning(t)
	c := s.plain(t)
	session, other := c.open(t), c.open(t)
	grant := c.acquire(t, session, "a", "r1")
	signature := grant.GetSignedToken()[strings.LastIndex(grant.GetSignedToken(), ".")+1:]
	for way, answer := range s.forAnyone(t, c, other) {
		if text := prototext.Format(answer); strings.Contains(text, signature) || strings.Contains(text, "signed_token") || !strings.Contains(text, "token:") {
			t.Errorf("%s: %s", way, text)
		}
	}
}

func (s signing) forAnyone(t *testing.T, c api, other string) map[string]proto.Message {
	t.Helper()
	held, err := c.locks.Acquire(t.Context(), connect.NewRequest(&fencelockv1.AcquireRequest{Key: "a", SessionId: other, RequestId: "r1"}))
	if err != nil {
		t.Fatal(err)
	}
	inspect, err := c.locks.Inspect(t.Context(), connect.NewRequest(&fencelockv1.InspectRequest{Key: "a"}))
	if err != nil {
		t.Fatal(err)
	}
	list, err := c.locks.ListLocks(t.Context(), connect.NewRequest(&fencelockv1.ListLocksRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	watch, err := c.locks.WatchLock(t.Context(), connect.NewRequest(&fencelockv1.WatchLockRequest{Key: "a"}))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = watch.Close() }()
	if !watch.Receive() {
		t.Fatal(watch.Err())
	}
	return map[string]proto.Message{"held": held.Msg, "inspect": inspect.Msg, "list": list.Msg, "watch": watch.Msg()}
}

func TestWithoutAKeyTokensAreBareNumbers(t *testing.T) {
	t.Parallel()
	c := newFixture(t).plain(t)
	if grant := c.acquire(t, c.open(t), "a", "r1"); grant.GetSignedToken() != "" {
		t.Errorf("grant %v", grant)
	}
}
