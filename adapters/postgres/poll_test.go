package postgres_test

import (
	"testing"

	"github.com/fencelock/fencelock/adapters/postgres"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

// act records revocations of keys that nobody holds; $1 to $2 are their tokens.
const act = `
INSERT INTO fencelock.lock_revocation (namespace, key, operator, reason, at, previous_owner, previous_session, previous_token, floor)
SELECT 'default', 'k', 'op', 'a reason', now(), 'tester', gen_random_uuid(), i, i FROM generate_series($1::bigint, $2::bigint) i`

// polling is a place whose Store has looked at the tables already, and its subscription.
func polling(t *testing.T) (*place, port.Subscription) {
	t.Helper()
	p := idlePlace(t)
	postgres.Poll(p.Store)
	return p, subscribe(t, p.Store)
}

// tells expects the acts with these tokens to be told of, in order, and nothing else before.
func tells(t *testing.T, sub port.Subscription, first, last lock.Token) {
	t.Helper()
	for token := first; token <= last; token++ {
		if ev := next(t, sub); ev.Kind != port.GrantRevoked || ev.Token != token {
			t.Fatalf("told of %+v, want act %d", ev, token)
		}
	}
}

// TestPollTellsOfEveryAct also where there was none at the first look, and many at the second.
func TestPollTellsOfEveryAct(t *testing.T) {
	t.Parallel()
	const many = 3 * postgres.LateActs
	p, sub := polling(t)
	p.exec(act, 1, many)
	tells(t, sub, 1, many)
	p.exec(act, many+1, many+1)
	tells(t, sub, many+1, many+1)
}

// TestPollTellsOfNoActOfBefore it looked first.
func TestPollTellsOfNoActOfBefore(t *testing.T) {
	t.Parallel()
	p := idlePlace(t)
	p.exec(act, 1, 2*postgres.LateActs)
	postgres.Poll(p.Store)
	sub := subscribe(t, p.Store)
	p.exec(act, 1000, 1000)
	tells(t, sub, 1000, 1000)
}

// TestPollTellsOfActsThatComeLate: their numbers were given before those of many others, and they are done after them.
func TestPollTellsOfActsThatComeLate(t *testing.T) {
	t.Parallel()
	p := idlePlace(t)
	p.exec(act, 1, 10)
	before := p.begin("SELECT")
	before.exec(act, 11, 11)
	p.exec(act, 12, 12)
	postgres.Poll(p.Store)
	sub := subscribe(t, p.Store)
	later := p.begin("SELECT")
	later.exec(act, 13, 13)
	const many = 1000 + 2*postgres.LateActs
	p.exec(act, 1001, many)
	tells(t, sub, 1001, many)
	later.commit()
	tells(t, sub, 13, 13)
	before.commit()
	tells(t, sub, 11, 11)
}

// TestPollThatMissesNumbersSaysSo: more were passed over than it looks for.
func TestPollThatMissesNumbersSaysSo(t *testing.T) {
	t.Parallel()
	p, sub := polling(t)
	p.exec("ALTER TABLE fencelock.lock_revocation ALTER COLUMN id RESTART WITH 1000")
	p.exec(act, 1, 1)
	if ev := next(t, sub); ev.Kind != port.Resync {
		t.Errorf("told of %+v, want a resync", ev)
	}
	tells(t, sub, 1, 1)
}
