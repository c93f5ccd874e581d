package stack_test

import (
	"testing"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/tools/drills/stack"
)

func TestLinesAreRead(t *testing.T) {
	t.Parallel()
	lines := stack.Lines(`lockserver ready: rpc http://127.0.0.1:1
{"time":"2026-01-02T03:04:05.678Z","level":"INFO","msg":"lock_granted","namespace":"default","key":"payout:a","session":"ab","owner":"x","token":33}
{"time":"2026-01-02T03:04:06Z","level":"WARN","msg":"fenced_out","payout":"p","account":"a","token":33,"resource":"ledger","error":"post payout: fenced out"}
{"time":"2026-01-02T03:04:07Z","level":"INF`)
	if len(lines) != 2 {
		t.Fatalf("%d lines: %+v", len(lines), lines)
	}
	if g := lines[0]; g.Event != "lock_granted" || g.Key != "payout:a" || g.Session != "ab" || g.Token != lock.Token(33) || g.At.Nanosecond() != 678_000_000 {
		t.Errorf("grant %+v", g)
	}
	if f := lines[1]; f.Event != "fenced_out" || f.Payout != "p" || f.Account != "a" || f.Resource != "ledger" {
		t.Errorf("refusal %+v", f)
	}
}
