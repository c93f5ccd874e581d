package command_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"connectrpc.com/connect"

	v1 "github.com/fencelock/fencelock/contracts/api/fencelock/v1"
)

// diagnosis is doctor's JSON.
type diagnosis struct {
	Server string
	OK     bool
	Checks []struct {
		Name   string
		OK     bool
		Detail string
	}
}

// doctor runs doctor against one fake and returns what it says, and its exit code.
func doctor(t *testing.T, f *fake, more ...string) (diagnosis, int) {
	t.Helper()
	o := call(t, environ(), append([]string{"doctor", "--json", "--server", f.serve(t)}, more...)...)
	var d diagnosis
	if err := json.Unmarshal([]byte(o.out), &d); err != nil {
		t.Fatalf("%v in %q, %q", err, o.out, o.errors)
	}
	return d, o.code
}

func TestDoctorUsesTheServerAndTidiesUp(t *testing.T) {
	t.Parallel()
	f := newFake()
	d, code := doctor(t, f)
	if code != 0 || !d.OK || len(d.Checks) != 7 {
		t.Errorf("code %d, %+v", code, d)
	}
	var acquired *v1.AcquireRequest
	var released *v1.ReleaseRequest
	closed := false
	for _, m := range f.requests() {
		switch m := m.(type) {
		case *v1.AcquireRequest:
			acquired = m
		case *v1.ReleaseRequest:
			released = m
		case *v1.CloseSessionRequest:
			closed = true
		}
	}
	if acquired.GetKey() == "" || released.GetKey() != acquired.GetKey() || released.GetToken() != big || !closed {
		t.Errorf("acquired %v, released %v, closed %v", acquired, released, closed)
	}
}

func TestDoctorForPeople(t *testing.T) {
	t.Parallel()
	o := call(t, environ(), "doctor", "--server", newFake().serve(t))
	if o.code != 0 || strings.Count(o.out, "  ok ") != 7 || !strings.Contains(o.out, "version v1.2.3, backend memory") {
		t.Errorf("got %+v", o)
	}
}

func TestDoctorFindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		spoil  func(*fake)
		fails  string
		checks int
	}{
		{"not ready", func(f *fake) { f.info.Ready = false }, "ready", 2},
		{"draining", func(f *fake) { f.info.Draining = true }, "ready", 2},
		{"fresh key held", func(f *fake) { f.held = true }, "acquire", 4},
		{"grant gone at once", func(f *fake) { f.releasedBefore = true }, "release", 7},
		{"heartbeats that do not return", func(f *fake) {
			f.heartbeat = func(ctx context.Context) { <-ctx.Done() }
		}, "heartbeat", 6},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := newFake()
			c.spoil(f)
			d, code := doctor(t, f, "--timeout", "5s")
			last := d.Checks[len(d.Checks)-1]
			if code != 205 || d.OK || last.OK || last.Name != c.fails || len(d.Checks) != c.checks {
				t.Errorf("code %d, %+v", code, d)
			}
			opened, closed := 0, 0
			for _, m := range f.requests() {
				switch m.(type) {
				case *v1.OpenSessionRequest:
					opened++
				case *v1.CloseSessionRequest:
					closed++
				}
			}
			if opened != closed {
				t.Errorf("%d sessions opened, %d closed", opened, closed)
			}
		})
	}
}

func TestDoctorPassesOnWhyAServerIsNotReady(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.info.Ready = false
	f.refuseSessions = failure(connect.CodeFailedPrecondition, &v1.ErrorDetail{
		Code: v1.ErrorCode_ERROR_CODE_UNSAFE_STORE, Message: "the store forgot token 7",
	})
	d, code := doctor(t, f)
	last := d.Checks[len(d.Checks)-1]
	if code != 205 || last.Name != "ready" || last.Detail != "UNSAFE_STORE: the server cannot grant now: the store forgot token 7" {
		t.Errorf("code %d, %+v", code, d)
	}
}

func TestDoctorLooksAtEveryServer(t *testing.T) {
	t.Parallel()
	o := call(t, environ(), "doctor", "--json", "--server", "http://127.0.0.1:1,"+newFake().serve(t))
	lines := strings.Split(strings.TrimSpace(o.out), "\n")
	if o.code != 205 || len(lines) != 2 || !strings.Contains(lines[0], `"ok":false`) || !strings.Contains(lines[1], `"ok":true`) {
		t.Errorf("got %+v", o)
	}
}
