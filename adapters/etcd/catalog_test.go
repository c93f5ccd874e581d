package etcd_test

import (
	"encoding/base64"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

// TestNoKeyOrPageTokenShowsASession: etcd writes keys into its log, and page tokens go to
// people who may list sessions and not use them.
func TestNoKeyOrPageTokenShowsASession(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	sessions := []lock.Session{p.open(lock.MaxTTL), p.open(lock.MaxTTL)}
	leased := request(key(t, "leased"), sessions[0].ID)
	leased.Lease = time.Minute
	p.grabWith(leased)
	p.grab("revoked", sessions[0])
	if _, err := p.Revoke(t.Context(), port.RevokeRequest{Key: key(t, "revoked"), Operator: "op", Reason: "a reason"}); err != nil {
		t.Fatal(err)
	}
	p.grab("bound", sessions[1])
	all, err := p.raw.Get(t.Context(), p.prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil || len(all.Kvs) < 7 {
		t.Fatalf("%d keys, %v", len(all.Kvs), err)
	}
	first, token, err := p.Sessions(t.Context(), port.Page{Size: 1})
	if err != nil || len(first) != 1 {
		t.Fatalf("%d sessions, %v", len(first), err)
	}
	text, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		t.Fatal(err)
	}
	const part = 12 // digits; that many in a row are no chance
	for _, s := range sessions {
		id := s.ID.Reveal()
		for i := 0; i+part <= len(id); i++ {
			for _, kv := range all.Kvs {
				if strings.Contains(string(kv.GetKey()), id[i:i+part]) {
					t.Fatalf("a key shows part of a session's id: %s", kv.GetKey())
				}
			}
			if strings.Contains(string(text), id[i:i+part]) {
				t.Fatalf("a page token shows part of a session's id: %s", text)
			}
		}
	}
	rest, _, err := p.Sessions(t.Context(), port.Page{Size: 1, Token: token})
	if err != nil || len(rest) != 1 || rest[0].ID.Equal(first[0].ID) {
		t.Errorf("second page: %d sessions, %v", len(rest), err)
	}
}

// TestForgedPageTokens: a token says where to go on, and must not lead out of its listing.
func TestForgedPageTokens(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	session := p.open(lock.MaxTTL)
	for _, name := range []string{"a/secret", "b/1", "b/2", "c/secret"} {
		p.grab(name, session)
	}
	forge := func(listing, last string) port.Page {
		return port.Page{Size: 10, Token: base64.RawURLEncoding.EncodeToString([]byte(listing + "\x00\x00" + last))}
	}
	namespace := lock.DefaultNamespace
	for _, last := range []string{"a/", "a", "c/", "b", "b/\x00", "b/ ", "", "\x00"} {
		list, _, err := p.Grants(t.Context(), namespace, "b/", forge("g\x00"+namespace+"\x00b/", last))
		if err == nil || len(list) > 0 {
			t.Errorf("grants after %q: %d grants, %v", last, len(list), err)
		}
		expect(t, "forged token for grants", err, lock.ErrInvalid)
	}
	for _, last := range []string{"", "x", strings.Repeat("x", 32), strings.Repeat("0", 31), strings.Repeat("0", 33), "\xff"} {
		_, _, err := p.Sessions(t.Context(), forge("s", last))
		expect(t, "forged token for sessions", err, lock.ErrInvalid)
		_, _, err = p.Revocations(t.Context(), namespace, forge("a\x00"+namespace, last))
		expect(t, "forged token for revocations", err, lock.ErrInvalid)
	}
	list, _, err := p.Grants(t.Context(), namespace, "b/", forge("g\x00"+namespace+"\x00b/", "b/1"))
	if err != nil || len(list) != 1 || list[0].Key.Name() != "b/2" {
		t.Errorf("grants after b/1: %+v, %v", list, err)
	}
}
