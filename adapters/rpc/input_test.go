package rpc_test

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	fencelockv1 "github.com/fencelock/fencelock/contracts/api/fencelock/v1"
	"github.com/fencelock/fencelock/core/lock"
)

// scene is what stands in the store while bad input arrives: a session that holds a key, and another.
type scene struct {
	api
	holder, other string
	token         int64
}

const heldKey = "held"

// attempt is one call and the answer that it must get.
type attempt struct {
	name  string
	call  func(ctx context.Context, s *scene) error
	want  connect.Code
	code  fencelockv1.ErrorCode
	field string
}

// TestBadInputIsRefusedAndChangesNothing is the table of bad inputs that a typed client can send, over each protocol.
func TestBadInputIsRefusedAndChangesNothing(t *testing.T) {
	t.Parallel()
	var table []attempt
	for _, part := range [][]attempt{badKeys(), badTimes(), badSessions(), badTokens(), badRequests(), badPages(), badActs()} {
		table = append(table, part...)
	}
	for _, p := range protocols() {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			s := &scene{api: f.client(t, p)}
			s.holder, s.other = s.open(t), s.open(t)
			s.token = s.acquire(t, s.holder, heldKey, "r0").GetToken()
			for _, a := range table {
				t.Run(a.name, func(t *testing.T) { f.refuses(t, s, a) })
			}
		})
	}
}

// refuses makes the attempt and looks that its answer is right, that nothing changed and that the server goes on.
func (f *fixture) refuses(t *testing.T, s *scene, a attempt) {
	t.Helper()
	before := f.snapshot(t)
	err := a.call(t.Context(), s)
	detail := wantError(t, err, a.want, a.code)
	if got := detail.GetDetails()["field"]; got != a.field {
		t.Errorf("field %q, want %q", got, a.field)
	}
	if after := f.snapshot(t); after != before {
		t.Errorf("the store changed:\n%s\n%s", before, after)
	}
	if _, err := s.sessions.Heartbeat(t.Context(), connect.NewRequest(&fencelockv1.HeartbeatRequest{SessionId: s.holder})); err != nil {
		t.Errorf("afterwards a heartbeat fails: %v", err)
	}
}

func invalid(name, field string, call func(ctx context.Context, s *scene) error) attempt {
	return attempt{name: name, call: call, want: connect.CodeInvalidArgument, code: fencelockv1.ErrorCode_ERROR_CODE_INVALID, field: field}
}

// acquiring returns a call that acquires with a request changed by adjust.
func acquiring(adjust func(r *fencelockv1.AcquireRequest)) func(ctx context.Context, s *scene) error {
	return func(ctx context.Context, s *scene) error {
		r := &fencelockv1.AcquireRequest{Key: "free", SessionId: s.other, RequestId: "r1"}
		adjust(r)
		_, err := s.locks.Acquire(ctx, connect.NewRequest(r))
		return err
	}
}

func badKeys() []attempt {
	var table []attempt
	for name, key := range map[string]string{
		"row 1 empty key":                  "",
		"row 2 key of 256 bytes":           strings.Repeat("k", 256),
		"row 2 key of 513 bytes":           strings.Repeat("k", 513),
		"row 3 key with NUL":               "a\x00b",
		"row 3 key with newline":           "a\nb",
		"row 3 key with tab":               "a\tb",
		"row 5 key with double slash":      "a//b",
		"row 5 key with leading slash":     "/a",
		"row 5 key with trailing slash":    "a/",
		"row 5 key with dot-dot segment":   "a/../b",
		"row 5 key that is a dot":          ".",
		"row 6 key in composed form":       "caf\u00e9",
		"row 6 key in decomposed form":     "cafe\u0301",
		"row 7 key that turns direction":   "a\u202eb",
		"row 7 key with terminal escape":   "a\x1b[31m",
		"row 8 key with quote and comment": "'; drop table",
		"row 8 key with percent":           "a%b",
	} {
		table = append(table, invalid(name, "key", acquiring(func(r *fencelockv1.AcquireRequest) { r.Key = key })))
	}
	for name, namespace := range map[string]string{
		"namespace with upper case": "Team",
		"namespace of 64 bytes":     strings.Repeat("n", 64),
		"namespace with slash":      "a/b",
	} {
		table = append(table, invalid(name, "namespace", acquiring(func(r *fencelockv1.AcquireRequest) { r.Namespace = namespace })))
	}
	return append(table, invalid("prefix with newline", "prefix", func(ctx context.Context, s *scene) error {
		_, err := s.locks.ListLocks(ctx, connect.NewRequest(&fencelockv1.ListLocksRequest{Prefix: "a\n"}))
		return err
	}))
}

func badTimes() []attempt {
	var table []attempt
	for name, d := range map[string]*durationpb.Duration{
		"zero":           durationpb.New(0),
		"negative":       durationpb.New(-time.Second),
		"1 ms":           durationpb.New(time.Millisecond),
		"25 h":           durationpb.New(25 * time.Hour),
		"the largest":    durationpb.New(math.MaxInt64),
		"past the range": {Seconds: 300_000_000_000},
	} {
		table = append(table,
			invalid("row 9 ttl "+name, "ttl", func(ctx context.Context, s *scene) error {
				_, err := s.sessions.OpenSession(ctx, connect.NewRequest(&fencelockv1.OpenSessionRequest{Owner: "o", Ttl: d}))
				return err
			}),
			invalid("row 9 lease "+name, "lease", acquiring(func(r *fencelockv1.AcquireRequest) { r.Lease = d })),
			invalid("row 9 lease of extend "+name, "lease", func(ctx context.Context, s *scene) error {
				_, err := s.locks.Extend(ctx, connect.NewRequest(&fencelockv1.ExtendRequest{
					Key: heldKey, SessionId: s.holder, Token: s.token, Lease: d,
				}))
				return err
			}))
	}
	for name, d := range map[string]time.Duration{
		"negative": -time.Second, "above the cap": time.Hour + time.Second, "the largest": math.MaxInt64,
	} {
		table = append(table, invalid("row 10 wait "+name, "wait", acquiring(func(r *fencelockv1.AcquireRequest) {
			r.Wait = durationpb.New(d)
		})))
	}
	return table
}

func badSessions() []attempt {
	unknown := lock.NewSessionID().Reveal()
	dead := func(name string, call func(ctx context.Context, s *scene) error) attempt {
		return attempt{name: name, call: call, want: connect.CodeFailedPrecondition, code: fencelockv1.ErrorCode_ERROR_CODE_SESSION_DEAD}
	}
	table := []attempt{
		dead("row 14 acquire by an unknown session", acquiring(func(r *fencelockv1.AcquireRequest) { r.SessionId = unknown })),
		dead("row 14 heartbeat of an unknown session", func(ctx context.Context, s *scene) error {
			_, err := s.sessions.Heartbeat(ctx, connect.NewRequest(&fencelockv1.HeartbeatRequest{SessionId: unknown}))
			return err
		}),
	}
	for name, id := range map[string]string{
		"empty":      "",
		"too short":  unknown[1:],
		"too long":   unknown + "0",
		"upper case": strings.ToUpper(unknown[:31]) + "A",
		"not hex":    "g" + unknown[1:],
	} {
		table = append(table,
			invalid("row 15 acquire with a session id "+name, "session_id", acquiring(func(r *fencelockv1.AcquireRequest) { r.SessionId = id })),
			invalid("row 15 heartbeat with a session id "+name, "session_id", func(ctx context.Context, s *scene) error {
				_, err := s.sessions.Heartbeat(ctx, connect.NewRequest(&fencelockv1.HeartbeatRequest{SessionId: id}))
				return err
			}),
			invalid("row 15 close with a session id "+name, "session_id", func(ctx context.Context, s *scene) error {
				_, err := s.sessions.CloseSession(ctx, connect.NewRequest(&fencelockv1.CloseSessionRequest{SessionId: id}))
				return err
			}),
			invalid("row 15 watch with a session id "+name, "session_id", func(ctx context.Context, s *scene) error {
				stream, err := s.sessions.WatchSession(ctx, connect.NewRequest(&fencelockv1.WatchSessionRequest{SessionId: id}))
				if err != nil {
					return err
				}
				stream.Receive()
				return stream.Err()
			}))
	}
	return table
}

func badTokens() []attempt {
	var table []attempt
	for name, token := range map[string]int64{"zero": 0, "negative": -7, "the smallest": math.MinInt64} {
		table = append(table,
			invalid("row 17 release with token "+name, "token", func(ctx context.Context, s *scene) error {
				_, err := s.locks.Release(ctx, connect.NewRequest(&fencelockv1.ReleaseRequest{Key: heldKey, SessionId: s.holder, Token: token}))
				return err
			}),
			invalid("row 17 extend with token "+name, "token", func(ctx context.Context, s *scene) error {
				_, err := s.locks.Extend(ctx, connect.NewRequest(&fencelockv1.ExtendRequest{Key: heldKey, SessionId: s.holder, Token: token}))
				return err
			}))
	}
	return append(table, attempt{
		name: "row 19 extend with a future token", want: connect.CodeFailedPrecondition, code: fencelockv1.ErrorCode_ERROR_CODE_LOCK_LOST,
		call: func(ctx context.Context, s *scene) error {
			_, err := s.locks.Extend(ctx, connect.NewRequest(&fencelockv1.ExtendRequest{Key: heldKey, SessionId: s.holder, Token: math.MaxInt64}))
			return err
		},
	})
}

func badRequests() []attempt {
	var table []attempt
	for name, id := range map[string]string{
		"empty": "", "of 10 KiB": strings.Repeat("r", 10<<10), "of 65 bytes": strings.Repeat("r", 65), "with a space": "a b",
	} {
		table = append(table,
			invalid("row 23 acquire with a request id "+name, "request_id", acquiring(func(r *fencelockv1.AcquireRequest) { r.RequestId = id })),
			invalid("row 23 abandon of a request id "+name, "request_id", func(ctx context.Context, s *scene) error {
				_, err := s.locks.Abandon(ctx, connect.NewRequest(&fencelockv1.AbandonRequest{Key: heldKey, SessionId: s.holder, RequestId: id}))
				return err
			}))
	}
	for name, owner := range map[string]string{
		"empty": "", "of 65 characters": strings.Repeat("o", 65), "with a newline": "a\nb", "that turns direction": "a\u202eb",
	} {
		table = append(table, invalid("owner "+name, "owner", func(ctx context.Context, s *scene) error {
			_, err := s.sessions.OpenSession(ctx, connect.NewRequest(&fencelockv1.OpenSessionRequest{Owner: owner}))
			return err
		}))
	}
	large := map[string]string{"note": strings.Repeat("x", 4097)}
	return append(table,
		invalid("metadata above 4 KiB", "metadata", acquiring(func(r *fencelockv1.AcquireRequest) { r.Metadata = large })),
		invalid("session metadata above 4 KiB", "metadata", func(ctx context.Context, s *scene) error {
			_, err := s.sessions.OpenSession(ctx, connect.NewRequest(&fencelockv1.OpenSessionRequest{Owner: "o", Metadata: large}))
			return err
		}))
}

func badPages() []attempt {
	var table []attempt
	for name, size := range map[string]int32{"negative": -1, "above 1000": 1001, "of a billion": 1_000_000_000} {
		table = append(table, invalid("row 39 page size "+name, "page_size", func(ctx context.Context, s *scene) error {
			_, err := s.locks.ListLocks(ctx, connect.NewRequest(&fencelockv1.ListLocksRequest{PageSize: size}))
			return err
		}))
	}
	return append(table, invalid("row 39 foreign page token", "page_token", func(ctx context.Context, s *scene) error {
		_, err := s.admin.ListSessions(ctx, connect.NewRequest(&fencelockv1.ListSessionsRequest{PageToken: "elsewhere"}))
		return err
	}))
}

func badActs() []attempt {
	revoking := func(adjust func(r *fencelockv1.RevokeRequest)) func(ctx context.Context, s *scene) error {
		return func(ctx context.Context, s *scene) error {
			r := &fencelockv1.RevokeRequest{Key: heldKey, Operator: "op", Reason: "worker is stuck"}
			adjust(r)
			_, err := s.admin.Revoke(ctx, connect.NewRequest(r))
			return err
		}
	}
	return []attempt{
		invalid("row 40 revoke without a reason", "reason", revoking(func(r *fencelockv1.RevokeRequest) { r.Reason = "" })),
		invalid("row 40 revoke with a short reason", "reason", revoking(func(r *fencelockv1.RevokeRequest) { r.Reason = "because" })),
		invalid("revoke without an operator", "operator", revoking(func(r *fencelockv1.RevokeRequest) { r.Operator = "" })),
		invalid("revoke of a negative token", "expected_token", revoking(func(r *fencelockv1.RevokeRequest) { r.ExpectedToken = -1 })),
		{
			name: "row 40 revoke of a free key", want: connect.CodeFailedPrecondition, code: fencelockv1.ErrorCode_ERROR_CODE_LOCK_LOST,
			call: revoking(func(r *fencelockv1.RevokeRequest) { r.Key = "free" }),
		},
		invalid("floor of zero", "above", func(ctx context.Context, s *scene) error {
			_, err := s.admin.RaiseTokenFloor(ctx, connect.NewRequest(&fencelockv1.RaiseTokenFloorRequest{Operator: "op", Reason: "restored a copy"}))
			return err
		}),
		{
			name: "row 13 deadline already past", want: connect.CodeDeadlineExceeded,
			call: func(ctx context.Context, s *scene) error {
				ctx, cancel := context.WithDeadline(ctx, time.Now().Add(-time.Second))
				defer cancel()
				return acquiring(func(*fencelockv1.AcquireRequest) {})(ctx, s)
			},
		},
	}
}
