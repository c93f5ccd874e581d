package rail_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencelock/fencelock/apps/payments/internal/bank"
	"github.com/fencelock/fencelock/apps/payments/internal/database"
	"github.com/fencelock/fencelock/apps/payments/internal/rail"
	"github.com/fencelock/fencelock/apps/payments/internal/refusal"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/tools/testenv"
)

// TestAProxyThatDiesBetweenIntentAndSending leaves an intent that nobody ever sends.
func TestAProxyThatDiesBetweenIntentAndSending(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if _, err := w.store(w.url, true).Intend(t.Context(), 33, order("p", "d")); err != nil {
		t.Fatal(err)
	}
	p := w.proxy(true)
	for range 2 {
		if s, there := w.lookup(p, 34, "p"); !there || s.Outcome != rail.Unknown || s.Transfers != 0 || s.Token != 33 {
			t.Errorf("looked up %+v", s)
		}
		_, err := p.Submit(t.Context(), 34, order("p", "d"))
		refused(t, "submit", err, refusal.Duplicate)
	}
	equal(t, "rail", w.executed(), "")
	equal(t, "rows", w.rows(p), "p 33")
	if n := w.sent(); n != 0 {
		t.Errorf("%d orders were sent", n)
	}
}

// TestAProxyThatDiesBetweenSendingAndOutcome leaves what a lookup finds out.
func TestAProxyThatDiesBetweenSendingAndOutcome(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, c := range []struct {
		payout, to string
		token      lock.Token
		outcome    rail.Outcome
		has        int
	}{
		{"p", "d", 33, rail.Acked, 1},
		{"q", bank.ToDecline, 40, rail.Rejected, 0},
	} {
		payout := c.payout
		if _, err := w.store(w.url, true).Intend(t.Context(), c.token, order(payout, c.to)); err != nil {
			t.Fatal(err)
		}
		if outcome, err := w.client().Send(t.Context(), order(payout, c.to)); outcome != c.outcome {
			t.Fatalf("sent: %s, %v", outcome, err)
		}
		p := w.proxy(true)
		s, _ := w.lookup(p, c.token+1, payout)
		if s.Outcome != c.outcome || s.Transfers != c.has || s.RailReference == "" {
			t.Errorf("looked up %+v", s)
		}
		// It is written: the rail is asked no more.
		if again, _ := w.lookup(p, c.token+2, payout); again.Outcome != c.outcome || again.Transfers != 0 || again.RailReference != s.RailReference {
			t.Errorf("looked up again %+v", again)
		}
	}
	equal(t, "events", w.kinds(), "rail_resolved rail_resolved")
}

func TestALostReplyIsUnknownUntilALookup(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.proxy(true)
	if s := w.submit(p, 33, order("p", bank.ToLoseReply)); s.Outcome != rail.Unknown {
		t.Errorf("reply lost: %+v", s)
	}
	if s := w.submit(p, 33, order("q", bank.ToLoseRequest)); s.Outcome != rail.Unknown {
		t.Errorf("request lost: %+v", s)
	}
	if s, _ := w.lookup(p, 33, "p"); s.Outcome != rail.Acked || s.Transfers != 1 {
		t.Errorf("reply lost: %+v", s)
	}
	if s, _ := w.lookup(p, 33, "q"); s.Outcome != rail.Unknown || s.Transfers != 0 {
		t.Errorf("request lost: %+v", s)
	}
	equal(t, "rail", w.executed(), "p executed")
	equal(t, "events", w.kinds(), "rail_submitted rail_ambiguous rail_submitted rail_ambiguous rail_resolved rail_still_ambiguous")
	if n := w.sent(); n != 2 {
		t.Errorf("%d orders were sent", n)
	}
}

// TestWhatSettlesNothingIsUnknownAndNotSentAgain tries all kinds of answers.
func TestWhatSettlesNothingIsUnknownAndNotSentAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.proxy(true)
	say := func(status int, body string) http.Handler {
		return http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Location", w.address+"/transfers")
			rw.WriteHeader(status)
			_, _ = io.WriteString(rw, body)
		})
	}
	executed := `{"id":"t-1","reference":"%s","amount":5,"status":"executed"}`
	cases := []http.Handler{
		say(200, executed), say(202, executed), say(500, executed), say(503, executed), say(404, `{}`), say(400, `{"error":"no"}`),
		say(301, executed), say(302, executed), say(307, executed), say(308, executed), say(201, ""), say(201, "{"), say(201, "null"), say(201, `[]`),
		say(201, `{"id":"t-1","reference":"other","amount":5,"status":"executed"}`),
		say(201, `{"id":"t-1","reference":"%s","amount":6,"status":"executed"}`),
		say(201, `{"id":"","reference":"%s","amount":5,"status":"executed"}`),
		say(201, `{"id":"t\u0000","reference":"%s","amount":5,"status":"executed"}`),
		say(201, `{"id":"`+strings.Repeat("t", 65)+`","reference":"%s","amount":5,"status":"executed"}`),
		say(201, `{"id":"t-1","reference":"%s","amount":5,"status":"declined"}`), say(422, executed), say(422, `{}`),
		say(201, strings.Repeat(" ", 2<<20)+`{}`),
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }),
	}
	for i, handler := range cases {
		payout := fmt.Sprintf("p%d", i)
		w.mu.Lock()
		w.handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			handler.ServeHTTP(&filled{rw, payout}, r)
		})
		w.mu.Unlock()
		if s := w.submit(p, 33, order(payout, "d")); s.Outcome != rail.Unknown {
			t.Errorf("case %d: %+v", i, s)
		}
		if n := w.sent(); n != i+1 {
			t.Fatalf("case %d: %d orders were sent", i, n)
		}
		if s, _ := w.lookup(p, 33, payout); s.Outcome != rail.Unknown {
			t.Errorf("case %d: looked up %+v", i, s)
		}
	}
}

// filled is a writer that puts a name into what it writes.
type filled struct {
	http.ResponseWriter

	name string
}

func (f *filled) Write(p []byte) (int, error) {
	_, err := io.WriteString(f.ResponseWriter, strings.ReplaceAll(string(p), "%s", f.name))
	return len(p), err
}

func TestARailThatIsAwayOrSilentIsUnknown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	address := w.address
	w.address = "http://" + testenv.FreeAddress(t)
	away := w.proxy(true)
	if s := w.submit(away, 33, order("p", "d")); s.Outcome != rail.Unknown {
		t.Errorf("away: %+v", s)
	}
	if s, there := w.lookup(away, 33, "p"); !there || s.Outcome != rail.Unknown {
		t.Errorf("away: looked up %+v", s)
	}
	w.address = address
	release := w.hold()
	silent := w.proxyAt(w.url, true, 50*time.Millisecond)
	if s := w.submit(silent, 33, order("q", "d")); s.Outcome != rail.Unknown {
		t.Errorf("silent: %+v", s)
	}
	release()
	// What was on its way arrives, late.
	for s, _ := w.lookup(w.proxy(true), 34, "q"); s.Outcome != rail.Acked; s, _ = w.lookup(silent, 34, "q") {
		if s.Outcome == rail.Rejected {
			t.Fatalf("looked up %+v", s)
		}
	}
	equal(t, "rail", w.executed(), "q executed")
}

func TestACallerThatLeavesDoesNotStopASubmission(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.proxy(true)
	release := w.hold()
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		_, err := p.Submit(ctx, 33, order("p", "d"))
		left <- err
	}()
	w.arrived()
	leave()
	if err := <-left; !errors.Is(err, lock.ErrContention) || !lock.IsAmbiguous(err) || !errors.Is(err, context.Canceled) {
		t.Errorf("the caller is told %v", err)
	}
	release()
	if s, _ := w.lookup(p, 33, "p"); s.Outcome != rail.Acked {
		t.Errorf("looked up %+v", s)
	}
	equal(t, "rail", w.executed(), "p executed")
	equal(t, "events", w.kinds(), "rail_submitted rail_answered")
}

func TestALookupWaitsForWhatIsBeingSent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.proxy(true)
	release := w.hold()
	submitted, looked := make(chan rail.Submission, 1), make(chan rail.Submission, 1)
	go func() {
		s, _ := p.Submit(t.Context(), 33, order("p", "d"))
		submitted <- s
	}()
	w.arrived()
	brief, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, _, err := p.Lookup(brief, 34, "p", "a"); !errors.Is(err, lock.ErrContention) {
		t.Errorf("who cannot wait is told %v", err)
	}
	go func() {
		s, _, _ := p.Lookup(t.Context(), 35, "p", "a")
		looked <- s
	}()
	conn := w.connect()
	for mark := 0; mark != 35; {
		if err := conn.QueryRow(t.Context(), "SELECT mark FROM rail.mark").Scan(&mark); err != nil {
			t.Fatal(err)
		}
	}
	// Another process cannot know, and says so.
	if s, there := w.lookup(w.proxy(true), 35, "p"); !there || s.Outcome != rail.Unknown {
		t.Errorf("another process looked up %+v", s)
	}
	release()
	if s, l := <-submitted, <-looked; s != l || s.Outcome != rail.Acked {
		t.Errorf("submitted %+v, looked up %+v", s, l)
	}
}

func TestClosingWaitsForWhatIsBeingSent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.proxy(true)
	release := w.hold()
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan struct{})
	go func() {
		defer close(left)
		_, _ = p.Submit(ctx, 33, order("p", "d"))
	}()
	w.arrived()
	leave()
	<-left
	brief, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := p.Close(brief); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("closed while something is being sent: %v", err)
	}
	if _, err := p.Submit(t.Context(), 33, order("q", "d")); !errors.Is(err, lock.ErrContention) || lock.IsAmbiguous(err) {
		t.Errorf("a submission to a closed proxy: %v", err)
	}
	closed := make(chan error, 1)
	go func() { closed <- p.Close(t.Context()) }()
	release()
	if err := <-closed; err != nil {
		t.Error(err)
	}
	equal(t, "rows", w.rows(p), "p 33 ACKED")
	equal(t, "rail", w.executed(), "p executed")
}

// TestAnOutcomeIsWrittenWhenTheDatabaseIsBack: the rail has answered while the database was away.
func TestAnOutcomeIsWrittenWhenTheDatabaseIsBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	network := testenv.NewProxy(t, w.url)
	p := w.proxyAt(network.URL(), true, patience)
	release := w.hold()
	submitted := make(chan rail.Submission, 1)
	go func() {
		s, _ := p.Submit(t.Context(), 33, order("p", "d"))
		submitted <- s
	}()
	w.arrived()
	network.Cut()
	if _, err := p.Submit(t.Context(), 33, order("q", "d")); !errors.Is(err, lock.ErrContention) || lock.IsAmbiguous(err) {
		t.Errorf("submit without a database: %v", err)
	}
	release()
	w.await("answered", func() bool { return len(w.events) > 1 })
	network.Heal()
	if s := <-submitted; s.Outcome != rail.Acked {
		t.Errorf("submitted %+v", s)
	}
	equal(t, "rows", w.rows(w.proxy(true)), "p 33 ACKED")
	equal(t, "rail", w.executed(), "p executed")
}

// TestAnOutcomeThatCannotBeWrittenIsNotToldAndFoundAgain: who were told would post the payout, and nobody would look it up any more.
func TestAnOutcomeThatCannotBeWrittenIsNotToldAndFoundAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.proxy(true)
	conn := w.connect()
	if _, err := conn.Exec(t.Context(), `
		CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''no'' USING ERRCODE = ''23514''; END';
		CREATE TRIGGER refuse BEFORE UPDATE ON rail.submission EXECUTE FUNCTION refuse()`); err != nil {
		t.Fatal(err)
	}
	if s := w.submit(p, 33, order("p", "d")); s.Outcome != rail.Unknown || s.RailReference != "" {
		t.Errorf("submitted %+v", s)
	}
	equal(t, "events", w.kinds(), "rail_submitted rail_answered rail_outcome_unrecorded")
	if _, err := conn.Exec(t.Context(), "DROP TRIGGER refuse ON rail.submission"); err != nil {
		t.Fatal(err)
	}
	if s, _ := w.lookup(p, 33, "p"); s.Outcome != rail.Acked || s.Transfers != 1 {
		t.Errorf("looked up %+v", s)
	}
}

// TestWhatIsWrittenStays: nobody removes a submission or writes another outcome, whatever the statement.
func TestWhatIsWrittenStays(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.proxy(true)
	w.submit(p, 33, order("p", "d"))
	w.submit(p, 33, order("q", bank.ToLoseRequest))
	conn := w.connect()
	for _, statement := range []string{
		"DELETE FROM rail.submission", "TRUNCATE rail.submission", "UPDATE rail.submission SET outcome = 'REJECTED' WHERE payout = 'p'",
		"UPDATE rail.submission SET outcome = NULL, answered_at = NULL WHERE payout = 'p'", "UPDATE rail.submission SET payout = 'r' WHERE payout = 'q'",
		"UPDATE rail.submission SET amount = 7 WHERE payout = 'q'", "UPDATE rail.submission SET fenced = false WHERE payout = 'q'",
	} {
		_, err := conn.Exec(t.Context(), statement)
		if e, ok := errors.AsType[*pgconn.PgError](err); !ok || e.Code != "23000" {
			t.Errorf("%s: %v", statement, err)
		}
	}
	equal(t, "rows", w.rows(p), "p 33 ACKED, q 33")
}

func TestManyProcessesStartAtOnce(t *testing.T) {
	t.Parallel()
	url := testenv.Postgres(t).Database(t)
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			db, err := database.Open(t.Context(), url, "test")
			if err != nil {
				t.Error(err)
				return
			}
			defer db.Close()
			if err := rail.Migrate(t.Context(), db); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func TestTheRailNeedsAURL(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"", "bank", "127.0.0.1:8484", "ftp://bank", "http://", "http://bank?x=1", "http://bank#x", ":"} {
		if _, err := rail.NewClient(address); err == nil {
			t.Errorf("%q is taken", address)
		}
	}
}
