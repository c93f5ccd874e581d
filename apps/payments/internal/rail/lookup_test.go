package rail_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/apps/payments/internal/bank"
	"github.com/fencelock/fencelock/apps/payments/internal/rail"
)

// TestALookupThatSettlesNothing tries listings that cannot be of what was sent, or cannot be written down.
func TestALookupThatSettlesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.proxy(true)
	w.submit(p, 33, order("p", bank.ToLoseReply))
	genuine := w.handler
	for _, transfer := range []string{
		`{"id":"t-1","reference":"q","amount":5,"status":"executed"}`,
		`{"id":"t-1","reference":"p","amount":6,"status":"executed"}`,
		`{"id":"t-1","reference":"p","amount":5,"status":"queued"}`,
		`{"id":"","reference":"p","amount":5,"status":"executed"}`,
		`{"id":"t\n1","reference":"p","amount":5,"status":"executed"}`,
		`{"id":"` + strings.Repeat("t", 65) + `","reference":"p","amount":5,"status":"executed"}`,
	} {
		w.mu.Lock()
		w.handler = http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(rw, `{"transfers":[`+transfer+`]}`)
		})
		w.mu.Unlock()
		if s, there := w.lookup(p, 33, "p"); !there || s.Outcome != rail.Unknown {
			t.Errorf("%s: %+v", transfer, s)
		}
		equal(t, "rows", w.rows(p), "p 33")
	}
	w.mu.Lock()
	w.handler = genuine
	w.mu.Unlock()
	if s, _ := w.lookup(p, 33, "p"); s.Outcome != rail.Acked {
		t.Errorf("in the end: %+v", s)
	}
}
