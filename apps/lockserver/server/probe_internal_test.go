package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/service"
)

// asked answers as the test says.
type asked struct{ err error }

func (a *asked) Ping(context.Context) error { return a.err }

func (*asked) Status() service.Status { return service.Status{} }

// TestWhatTheProbeLogs: each change once, and a change of the reason too, but not each other wording of the driver.
func TestWhatTheProbeLogs(t *testing.T) {
	t.Parallel()
	away := func(words string) error { return lock.Contention("away", false, errors.New(words)) }
	steps := []struct {
		err  error
		logs string
	}{
		{away("from port 1"), "not_ready away: from port 1"},
		{away("from port 2"), ""},
		{&lock.Error{Code: lock.CodeUnsafeStore, Message: "unsafe"}, "not_ready unsafe"},
		{away("from port 3"), "not_ready away: from port 3"},
		{nil, "ready_again away: from port 3"},
		{nil, ""},
		{errors.New("strange"), "not_ready strange"},
		{errors.New("stranger"), ""},
	}
	var log bytes.Buffer
	store := &asked{}
	p := newProbe(store, slog.New(slog.NewJSONHandler(&log, nil)))
	for i, step := range steps {
		store.err = step.err
		log.Reset()
		p.ask(t.Context())
		if got := logged(t, log.Bytes()); got != step.logs {
			t.Errorf("step %d: logged %q, want %q", i, got, step.logs)
		}
		if err := p.ready(t.Context()); !errors.Is(err, step.err) {
			t.Errorf("step %d: ready: %v", i, err)
		}
	}
}

// TestAFirstGoodAnswerIsNoNews: the server starts with the store there.
func TestAFirstGoodAnswerIsNoNews(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	newProbe(&asked{}, slog.New(slog.NewJSONHandler(&log, nil))).ask(t.Context())
	if log.Len() > 0 {
		t.Errorf("logged %s", log.String())
	}
}

// logged is the event and the reason of one line.
func logged(t *testing.T, line []byte) string {
	t.Helper()
	if len(line) == 0 {
		return ""
	}
	var event struct{ Msg, Reason string }
	if err := json.Unmarshal(line, &event); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(event.Msg + " " + event.Reason)
}
