package main

import (
	"crypto/rand"
	"errors"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	fencelockv1 "github.com/fencelock/fencelock/contracts/api/fencelock/v1"
	"github.com/fencelock/fencelock/tools/testenv"
)

func embeddedEtcd(t *testing.T) place {
	t.Helper()
	return place{args: []string{"--etcd.data-dir=" + t.TempDir()}}
}

func externalEtcd(t *testing.T) place {
	t.Helper()
	return place{args: []string{
		"--lock.backend=etcd", "--etcd.endpoints=" + strings.Join(testenv.Etcd(t).Endpoints, ","),
		"--etcd.prefix=" + rand.Text() + "/", "--etcd.data-dir=" + t.TempDir(),
	}}
}

func ownDatabase(t *testing.T) place {
	t.Helper()
	return postgres(testenv.Postgres(t).Database(t), t.TempDir())
}

func postgres(address, notes string) place {
	return place{
		env:  []string{"FENCELOCK_LOCK_BACKEND=postgres", "FENCELOCK_POSTGRES_URL=" + address},
		args: []string{"--postgres.state-dir=" + notes},
	}
}

// durable are the places whose data outlives a server that is alone there.
func durable() map[string]func(*testing.T) place {
	return map[string]func(*testing.T) place{"embedded etcd": embeddedEtcd, "PostgreSQL": ownDatabase}
}

// common are the places for several servers.
func common() map[string]func(*testing.T) place {
	return map[string]func(*testing.T) place{"external etcd": externalEtcd, "PostgreSQL": ownDatabase}
}

func TestTokensRiseAndSessionsLiveThroughSIGKILL(t *testing.T) {
	t.Parallel()
	for name, find := range durable() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := find(t)
			first := at.launch(t)
			session := first.open(t)
			token := first.acquire(t, session, "demo", "r1")
			kept := first.acquire(t, session, "kept", "r1")
			first.release(t, session, "demo", token)
			first.kill()
			second := at.launch(t)
			second.heartbeat(t, session)
			if again := second.acquire(t, session, "kept", "r1"); again != kept {
				t.Errorf("the grant of token %d became %d", kept, again)
			}
			if next := second.acquire(t, session, "demo", "r2"); next <= token {
				t.Errorf("token %d after %d: it must rise", next, token)
			}
		})
	}
}

func TestASessionOpenedOnOneServerLivesOnAnother(t *testing.T) {
	t.Parallel()
	for name, find := range common() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := find(t)
			first, second := at.launch(t), at.launch(t)
			session := first.open(t)
			token := first.acquire(t, session, "shared", "r1")
			second.heartbeat(t, session)
			waiting := second.open(t)
			granted := make(chan int64, 1)
			go func() {
				answer, err := second.locks().Acquire(t.Context(), connect.NewRequest(&fencelockv1.AcquireRequest{
					Key: "shared", SessionId: waiting, RequestId: "r1", Wait: durationpb.New(eventually),
				}))
				if err != nil {
					t.Errorf("wait: %v", err)
				}
				granted <- answer.Msg.GetGrant().GetToken()
			}()
			first.kill()
			second.heartbeat(t, session)
			second.release(t, session, "shared", token)
			if next := <-granted; next <= token {
				t.Errorf("the waiter got token %d after %d", next, token)
			}
		})
	}
}

func TestSIGTERMDrains(t *testing.T) {
	t.Parallel()
	for name, find := range durable() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := find(t)
			p := at.launch(t)
			session := p.open(t)
			token := p.acquire(t, session, "kept", "r1")
			waiting := p.open(t)
			ended := make(chan error, 1)
			go func() {
				_, err := p.locks().Acquire(t.Context(), connect.NewRequest(&fencelockv1.AcquireRequest{
					Key: "kept", SessionId: waiting, RequestId: "r1", Wait: durationpb.New(time.Hour),
				}))
				ended <- err
			}()
			p.waitForWaiter(t)
			p.terminate(t)
			// A cut connection is unavailable too; only the server's own answer has a detail.
			var answer *connect.Error
			if err := <-ended; !errors.As(err, &answer) || answer.Code() != connect.CodeUnavailable || len(answer.Details()) == 0 {
				t.Errorf("the wait ended with %v, want unavailable in the server's own words", err)
			}
			if code := p.exit(t); code != 0 {
				t.Errorf("exit code %d: %s", code, p.errors)
			}
			if again := at.launch(t).acquire(t, session, "kept", "r1"); again != token {
				t.Errorf("the grant of token %d became %d", token, again)
			}
		})
	}
}
