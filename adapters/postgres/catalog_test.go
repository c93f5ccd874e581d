package postgres_test

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencelock/fencelock/adapters/postgres"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

// pages reads a listing to its end, page by page.
func pages[V any](t *testing.T, size int, list func(port.Page) ([]V, string, error)) []V {
	t.Helper()
	var all []V
	for page := (port.Page{Size: size}); ; {
		part, next, err := list(page)
		if err != nil {
			t.Fatalf("list: %v", err)
		}
		if len(part) > size || next != "" && len(part) < size {
			t.Errorf("a page of %d has %d, next %q", size, len(part), next)
		}
		all = append(all, part...)
		if page.Token = next; next == "" {
			return all
		}
		if len(all) > port.MaxPageSize {
			t.Fatalf("the listing has no end; the last token is %q", next)
		}
	}
}

// names are the keys of grants.
func names(grants []lock.Grant) []string {
	var list []string
	for _, g := range grants {
		list = append(list, g.Key.Name())
	}
	return list
}

// TestListsHoldWhatLivesInOrder: pages of every size give the same, and nothing that is over, whether or not somebody has found
// that out.
func TestListsHoldWhatLivesInOrder(t *testing.T) {
	t.Parallel()
	p := idlePlace(t)
	condemned := p.open(lock.MaxTTL)
	p.grab("a/condemned", condemned)
	if _, err := p.RaiseFloor(t.Context(), port.FloorRequest{Operator: "op", Reason: "a reason"}); err != nil {
		t.Fatal(err)
	}
	living, expired, killed, deleted := p.open(lock.MaxTTL), p.open(lock.MaxTTL), p.open(lock.MaxTTL), p.open(lock.MaxTTL)
	metadata := map[string]string{"quote": "7"}
	var want []lock.Grant
	for i, name := range []string{"a", "a-b", "a/1", "a/10", "a/2", "a/b/c", "a/z", "a0", "b", "Z", "~"} {
		if name == "~" {
			name = "z=+@"
		}
		req := request(key(t, name), living.ID)
		if i%2 == 0 {
			req.Lease, req.Metadata = time.Minute, metadata
		}
		want = append(want, p.grabWith(req))
	}
	for i, s := range []lock.Session{expired, killed, deleted} {
		p.grab(fmt.Sprint("a/dead/", i), s)
	}
	p.grabLeased("a/lapsed", living)
	p.release(p.grab("a/released", living))
	p.expire(expired)
	p.kill(killed.ID)
	p.exec("DELETE FROM fencelock.lock_session WHERE secret = $1::uuid", deleted.ID.Reveal())
	p.lapse("a/lapsed")
	slices.SortFunc(want, func(a, b lock.Grant) int { return strings.Compare(a.Key.Name(), b.Key.Name()) })
	for size := 1; size <= len(want)+1; size++ {
		for _, prefix := range []string{"", "a", "a/", "a/1", "a/b", "z", "b/"} {
			var expected []string
			for _, name := range names(want) {
				if strings.HasPrefix(name, prefix) {
					expected = append(expected, name)
				}
			}
			got := pages(t, size, func(page port.Page) ([]lock.Grant, string, error) {
				return p.Grants(t.Context(), lock.DefaultNamespace, prefix, page)
			})
			if !slices.Equal(names(got), expected) {
				t.Errorf("pages of %d with prefix %q: %q, want %q", size, prefix, names(got), expected)
			}
		}
		sessions := pages(t, size, func(page port.Page) ([]lock.Session, string, error) { return p.Sessions(t.Context(), page) })
		if len(sessions) != 2 || !sessions[0].ID.Equal(condemned.ID) || !sessions[1].ID.Equal(living.ID) {
			t.Errorf("pages of %d: %+v, want the two sessions that live, the older one first", size, sessions)
		}
	}
	got, _, err := p.Grants(t.Context(), lock.DefaultNamespace, "", port.Page{Size: port.MaxPageSize})
	if err != nil || len(got) != len(want) {
		t.Fatalf("%d grants, %v", len(got), err)
	}
	for i := range want {
		p.same(t, "listed", want[i], got[i])
	}
	if other, next, err := p.Grants(t.Context(), "elsewhere", "", port.Page{Size: 10}); err != nil || len(other) != 0 || next != "" {
		t.Errorf("another namespace: %+v, %q, %v", other, next, err)
	}
	if counts, err := p.Counts(t.Context()); err != nil || counts != (port.Counts{Grants: len(want), Sessions: 2}) {
		t.Errorf("counted %+v, %v", counts, err)
	}
}

// TestListsGoOnThroughChanges: what stands throughout is listed once, whatever comes and goes around it.
func TestListsGoOnThroughChanges(t *testing.T) {
	t.Parallel()
	p := idlePlace(t)
	session := p.open(lock.MaxTTL)
	var passing lock.Grant
	for _, name := range []string{"b", "d", "f", "h"} {
		passing = p.grab(name, session)
	}
	turn := 0
	got := pages(t, 1, func(page port.Page) ([]lock.Grant, string, error) {
		part, next, err := p.Grants(t.Context(), lock.DefaultNamespace, "", page)
		switch turn++; turn {
		case 1:
			p.grab("a", session) // before where the next page begins
			p.grab("c", session)
		case 2:
			p.release(passing)
		}
		return part, next, err
	})
	if !slices.Equal(names(got), []string{"b", "c", "d", "f"}) {
		t.Errorf("listed were %q", names(got))
	}
}

// condemn revokes a grant of the namespace, and sees that it is listed as it was said to be.
func (p *place) condemn(t *testing.T, namespace, reason string, session lock.Session) {
	t.Helper()
	k, err := lock.NewKey(namespace, "a")
	if err != nil {
		t.Fatal(err)
	}
	g := p.grabWith(request(k, session.ID))
	r, err := p.Revoke(t.Context(), port.RevokeRequest{Key: k, Operator: "op", Reason: reason})
	if err != nil {
		t.Fatal(err)
	}
	list, _, err := p.Revocations(t.Context(), namespace, port.Page{Size: 1})
	if err != nil || len(list) != 1 || !list[0].At.Equal(r.At) {
		t.Fatalf("listed: %+v, %v", list, err)
	}
	list[0].At = r.At
	if list[0] != r || r.PreviousToken != g.Token || !r.PreviousSession.Equal(session.ID) {
		t.Errorf("listed %+v, revoked %+v", list[0], r)
	}
}

// TestRevocationsPage: those of the namespace and the raised floors, newest first, in pages of every size.
func TestRevocationsPage(t *testing.T) {
	t.Parallel()
	p := idlePlace(t)
	session := p.open(lock.MaxTTL)
	reasons := map[string][]string{}
	for i := range 12 {
		reason, concerned := fmt.Sprint("act ", i), []string{lock.DefaultNamespace, "second", "third"}
		if i%3 == 0 {
			if _, err := p.RaiseFloor(t.Context(), port.FloorRequest{Operator: "op", Reason: reason}); err != nil {
				t.Fatal(err)
			}
		} else {
			concerned = concerned[i%2 : i%2+1]
			p.condemn(t, concerned[0], reason, session)
		}
		for _, ns := range concerned {
			reasons[ns] = append([]string{reason}, reasons[ns]...)
		}
	}
	for ns, want := range reasons {
		for size := 1; size <= len(want)+1; size++ {
			var got []string
			for _, r := range pages(t, size, func(page port.Page) ([]lock.Revocation, string, error) {
				return p.Revocations(t.Context(), ns, page)
			}) {
				got = append(got, r.Reason)
				if floor := r.Key.IsZero(); floor != (r.PreviousToken == 0) || floor != r.PreviousSession.IsZero() || !floor && r.Key.Namespace() != ns {
					t.Errorf("%s lists %+v", ns, r)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s in pages of %d: %q, want %q", ns, size, got, want)
			}
		}
	}
}

// TestPagesReadLittle: others may have as many records as they like, and the page may be the last of many.
func TestPagesReadLittle(t *testing.T) {
	t.Parallel()
	p := idlePlace(t)
	const many = 20000
	session := p.open(lock.MaxTTL)
	p.exec(`INSERT INTO fencelock.lock_revocation (namespace, key, operator, reason, at, floor)
SELECT 'busy', 'a', 'op', 'a reason', clock_timestamp(), i FROM generate_series(1, $1::int) i`, many)
	p.exec(`INSERT INTO fencelock.lock_entry (namespace, key, token, session, request_id, granted_at)
SELECT 'busy', 'key/' || i, nextval('fencelock.fencing_token_seq'), $2, 'r', clock_timestamp() FROM generate_series(1, $1::int) i`,
		many, p.numberOf(session))
	p.exec("ANALYZE fencelock.lock_revocation, fencelock.lock_entry, fencelock.lock_session")
	conn, err := p.raw.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	// As a connection plans after a while: for any parameters.
	for _, sql := range []string{
		"SET plan_cache_mode = force_generic_plan", "PREPARE revocations AS " + postgres.ListRevocations, "PREPARE grants AS " + postgres.ListGrants,
	} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	const now = "now(), '1000 hours', '1000 hours', "
	for name, list := range map[string]string{
		"records of a quiet namespace":    "revocations('quiet', 9223372036854775807, 3)",
		"the first records of a busy one": "revocations('busy', 9223372036854775807, 3)",
		"its last":                        "revocations('busy', 3, 3)",
		"grants of a quiet namespace":     "grants(" + now + "'quiet', '', '~', '', 3)",
		"the first grants of a busy one":  "grants(" + now + "'busy', '', '~', '', 3)",
		"its last grants":                 "grants(" + now + "'busy', 'key/', 'key0', 'key/9998', 3)",
	} {
		lines, err := conn.Query(t.Context(), "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) EXECUTE "+list)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		plan, err := pgx.CollectRows(lines, pgx.RowTo[string])
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		text := strings.Join(plan, "\n")
		if strings.Contains(text, "Seq Scan on lock_entry") || strings.Contains(text, "Seq Scan on lock_revocation") || strings.Contains(text, "Removed") {
			t.Errorf("%s:\n%s", name, text)
		}
	}
}

// TestNoPageTokenShowsASession: page tokens go to people who may list sessions and not use them.
func TestNoPageTokenShowsASession(t *testing.T) {
	t.Parallel()
	p := idlePlace(t)
	sessions := []lock.Session{p.open(lock.MaxTTL), p.open(lock.MaxTTL)}
	_, token, err := p.Sessions(t.Context(), port.Page{Size: 1})
	if err != nil {
		t.Fatal(err)
	}
	text, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(text) == 0 {
		t.Fatalf("token %q: %v", token, err)
	}
	const part = 8 // digits; that many in a row are no chance
	for _, s := range sessions {
		for id := s.ID.Reveal(); len(id) >= part; id = id[1:] {
			if strings.Contains(string(text), id[:part]) {
				t.Fatalf("a page token shows part of a session's id: %q", text)
			}
		}
	}
}

// TestForgedPageTokens: a token says where to go on, and must not lead out of its listing.
func TestForgedPageTokens(t *testing.T) {
	t.Parallel()
	p := idlePlace(t)
	session := p.open(lock.MaxTTL)
	for _, name := range []string{"a/secret", "b/1", "b/2", "c/secret"} {
		p.grab(name, session)
	}
	const namespace = lock.DefaultNamespace
	forge := func(listing, last string) port.Page { return port.Page{Size: 10, Token: port.PageToken(listing, last)} }
	for _, last := range []string{"a/", "a", "c/", "b", "b/\x00", "b/ ", "\x00", "b/\xff"} {
		list, _, err := p.Grants(t.Context(), namespace, "b/", forge("g\x00"+namespace+"\x00b/", last))
		if err == nil || len(list) > 0 {
			t.Errorf("grants after %q: %d grants, %v", last, len(list), err)
		}
		expect(t, "forged token for grants", err, lock.ErrInvalid)
	}
	for _, last := range []string{"0", "-1", "01", "+1", "1.0", " 1", "x", "9223372036854775808", "1e3", "\xff", "1\x00"} {
		_, _, err := p.Sessions(t.Context(), forge("s", last))
		expect(t, "forged token for sessions", err, lock.ErrInvalid)
		_, _, err = p.Revocations(t.Context(), namespace, forge("a\x00"+namespace, last))
		expect(t, "forged token for revocations", err, lock.ErrInvalid)
	}
	for _, size := range []int{-1, 0, port.MaxPageSize + 1} {
		_, _, err := p.Sessions(t.Context(), port.Page{Size: size})
		expect(t, "a size out of range", err, lock.ErrInvalid)
	}
	list, _, err := p.Grants(t.Context(), namespace, "b/", forge("g\x00"+namespace+"\x00b/", "b/1"))
	if err != nil || len(list) != 1 || list[0].Key.Name() != "b/2" {
		t.Errorf("grants after b/1: %+v, %v", list, err)
	}
}
