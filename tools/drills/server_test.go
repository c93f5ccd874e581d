package drills_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/adapters/client"
	fencelockv1 "github.com/fencelock/fencelock/contracts/api/fencelock/v1"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/tools/drills"

	"connectrpc.com/connect"
)

// readyLimit is what the README promises for a start.
const readyLimit = 5 * time.Second

// TestServerIsReadySoonAndTokensRiseOverKill is not parallel: the promise is about a machine that does nothing else.
func TestServerIsReadySoonAndTokensRiseOverKill(t *testing.T) {
	store := drills.Embedded(t)
	programs.Path(t, "lockserver")
	begin := time.Now()
	first := startServer(t, store)
	took := time.Since(begin)
	t.Logf("ready after %v", took)
	if took > readyLimit {
		t.Errorf("ready after %v, promised %v", took, readyLimit)
	}
	tokensRiseOverKill(t, store, first)
}

func TestTokensRiseOverKillOnADatabase(t *testing.T) {
	t.Parallel()
	store := drills.Postgres(t)
	tokensRiseOverKill(t, store, startServer(t, store))
}

func tokensRiseOverKill(t *testing.T, store drills.Store, first *drills.Server) {
	t.Helper()
	before := grantOnce(t, first, "demo")
	first.Kill()
	second := startServer(t, store)
	if after := grantOnce(t, second, "demo"); after <= before {
		t.Errorf("token %d after the kill, %d before", after, before)
	}
}

// grantOnce acquires the key and leaves the session to die, as a killed client would.
func grantOnce(t *testing.T, s *drills.Server, key string) lock.Token {
	t.Helper()
	session := openSession(t, dial(t, s.URL()), "drill", 2*time.Second)
	held, err := session.Acquire(t.Context(), key, client.WithWait(patience))
	if err != nil {
		t.Fatalf("acquire: %v", err)
	}
	return held.Token()
}

func TestPlainHTTPNeedsNoSDK(t *testing.T) {
	t.Parallel()
	s := startServer(t, drills.Embedded(t))
	opened := post(t, s, "SessionService/OpenSession", `{"owner":"me","ttl":"10s"}`)
	id, _ := dig(opened, "session", "id").(string)
	if len(id) != 32 {
		t.Fatalf("session id %q in %v", id, opened)
	}
	where := `"key":"payout:1","sessionId":"` + id + `"`
	granted := post(t, s, "LockService/Acquire", `{`+where+`,"requestId":"r1","wait":"5s"}`)
	token, _ := dig(granted, "grant", "token").(string)
	if n, err := strconv.ParseInt(token, 10, 64); err != nil || n <= 0 {
		t.Fatalf("token %q in %v", token, granted)
	}
	if seen := post(t, s, "LockService/Inspect", `{"key":"payout:1"}`); dig(seen, "grant", "token") != token {
		t.Errorf("inspect after acquire: %v", seen)
	}
	if done := post(t, s, "LockService/Release", `{`+where+`,"token":"`+token+`"}`); done["released"] != true {
		t.Errorf("release: %v", done)
	}
	if seen := post(t, s, "LockService/Inspect", `{"key":"payout:1"}`); seen["held"] == true {
		t.Errorf("inspect after release: %v", seen)
	}
	post(t, s, "LockService/Acquire", `{`+where+`,"requestId":"r2"}`)
	if closed := post(t, s, "SessionService/CloseSession", `{"sessionId":"`+id+`"}`); dig(closed, "released") != 1.0 {
		t.Errorf("close: %v", closed)
	}
}

// post sends one JSON call and returns the JSON answer.
func post(t *testing.T, s *drills.Server, method, body string) map[string]any {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL()+"/fencelock.v1."+method, strings.NewReader(body))
	if err != nil {
		t.Fatalf("make request: %v", err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatalf("post %s: %v", method, err)
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("post %s: status %d, %v: %s", method, resp.StatusCode, err, raw)
	}
	answer := map[string]any{}
	if err := json.Unmarshal(raw, &answer); err != nil {
		t.Fatalf("post %s: %v in %s", method, err, raw)
	}
	return answer
}

// dig follows names into nested JSON objects.
func dig(v any, path ...string) any {
	for _, name := range path {
		object, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = object[name]
	}
	return v
}

func TestGrpcurlWorksThroughReflection(t *testing.T) {
	t.Parallel()
	s := startServer(t, drills.Embedded(t))
	listed := grpcurl(t, "-plaintext", s.Addr, "list")
	for _, service := range []string{"fencelock.v1.LockService", "fencelock.v1.SessionService", "fencelock.v1.AdminService", "grpc.health.v1.Health"} {
		if !strings.Contains(listed, service) {
			t.Errorf("%s is not listed in:\n%s", service, listed)
		}
	}
	opened := grpcurl(t, "-plaintext", "-d", `{"owner":"me"}`, s.Addr, "fencelock.v1.SessionService/OpenSession")
	if !strings.Contains(opened, `"ttl": "15s"`) {
		t.Errorf("open session through grpcurl:\n%s", opened)
	}
}

func grpcurl(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"tool", "grpcurl"}, args...)...)
	cmd.Dir = filepath.Join("..", "dev")
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("grpcurl %v: %v\n%s", args, err, stderr.Bytes())
	}
	return string(out)
}

func TestTwoServersShareSessionsAndOneMayDie(t *testing.T) {
	t.Parallel()
	for _, k := range common() {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			store := k.open(t)
			a, b := startServer(t, store), startServer(t, store)
			onA, onB := dial(t, a.URL()), dial(t, b.URL())
			ctx := t.Context()
			opened, err := onA.Sessions().OpenSession(ctx, connect.NewRequest(&fencelockv1.OpenSessionRequest{Owner: "roamer"}))
			if err != nil {
				t.Fatalf("open on a: %v", err)
			}
			id := opened.Msg.GetSession().GetId()
			tokens := map[string]int64{}
			for _, key := range []string{"one", "two"} {
				got, err := onA.Locks().Acquire(ctx, connect.NewRequest(&fencelockv1.AcquireRequest{Key: key, SessionId: id, RequestId: "r"}))
				if err != nil || got.Msg.GetGrant() == nil {
					t.Fatalf("acquire %s on a: %v %v", key, got, err)
				}
				tokens[key] = got.Msg.GetGrant().GetToken()
			}
			release := func(key string) {
				t.Helper()
				beat, err := onB.Sessions().Heartbeat(ctx, connect.NewRequest(&fencelockv1.HeartbeatRequest{SessionId: id}))
				if err != nil || beat.Msg.GetRemaining().AsDuration() <= 0 {
					t.Fatalf("heartbeat on b: %v %v", beat, err)
				}
				done, err := onB.Locks().Release(ctx, connect.NewRequest(&fencelockv1.ReleaseRequest{Key: key, SessionId: id, Token: tokens[key]}))
				if err != nil || !done.Msg.GetReleased() {
					t.Fatalf("release %s on b: %v %v", key, done, err)
				}
			}
			release("one")
			a.Kill()
			seen, err := onB.Locks().Inspect(ctx, connect.NewRequest(&fencelockv1.InspectRequest{Key: "two"}))
			if err != nil || seen.Msg.GetGrant().GetToken() != tokens["two"] {
				t.Fatalf("after the death of a, b sees %v, %v", seen, err)
			}
			release("two")
		})
	}
}
