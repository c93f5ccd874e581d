package history

import (
	"encoding/binary"
	"math"
	"strings"
	"time"

	"github.com/fencelock/fencelock/core/lock"
)

// anyToken is the token of a grant whose answer was lost: at least state.max.
const anyToken lock.Token = -1

// drift is how much faster than ours the store's clock may run.
const drift = 0.01

// state is one key of a fenced lock. It is comparable, as porcupine's cache wants it.
type state struct {
	holder  uint32 // number of a session; 0: free
	request lock.RequestID
	token   lock.Token
	// lease is the length of the grant's lease and lapse the earliest moment
	// at which it can run out; both 0 without one.
	lease, lapse time.Duration
	// max is a lower bound of the highest token ever granted or condemned.
	max lock.Token
	// dead holds the numbers of the sessions known to be dead, four bytes each, sorted.
	dead string
	// now is the latest of the earliest moments of the silent ends applied so far.
	now time.Duration
}

// entry is an operation as it bears on one key, its sessions numbered.
type entry struct {
	*Operation

	session, from uint32
	// until is the latest moment at which it can take effect: its return, or less; see parts.bound.
	until time.Duration
	// found is, of a LocksOf, the token that the session was said to have on the key; 0 for none.
	found lock.Token
}

// model is a fenced lock over sessions that cannot die before alive[number].
type model struct{ alive []time.Duration }

func number(session uint32) string {
	return string(binary.BigEndian.AppendUint32(nil, session))
}

func (s state) isDead(session uint32) bool {
	for i := 0; i < len(s.dead); i += 4 {
		if s.dead[i:i+4] == number(session) {
			return true
		}
	}
	return false
}

func (s state) kill(session uint32) state {
	if !s.isDead(session) {
		n := number(session)
		i := 0
		for i < len(s.dead) && s.dead[i:i+4] < n {
			i += 4
		}
		s.dead = s.dead[:i] + n + s.dead[i:]
	}
	if s.holder == session {
		s = s.free()
	}
	return s
}

func (s state) free() state {
	s.holder, s.request, s.token, s.lease, s.lapse = 0, "", 0, 0, 0
	return s
}

// grant makes the entry's session the holder.
func (s state) grant(in entry, token lock.Token) state {
	s.holder, s.request, s.token, s.lease, s.lapse = in.session, in.Request, token, in.Lease, 0
	if s.max = max(token, s.max); token == anyToken {
		s.max++
	}
	return s.prolong(in.Call, in.Lease)
}

// prolong moves the earliest lapse: a lease asked for at call lasts at least its length.
func (s state) prolong(call, lease time.Duration) state {
	if lease > 0 {
		s.lapse = max(s.lapse, call+shrink(lease))
	}
	return s
}

func shrink(d time.Duration) time.Duration { return time.Duration(float64(d) * (1 - drift)) }

// has reports whether the standing grant can be that of session and token.
func (s state) has(session uint32, token lock.Token) bool {
	return session != 0 && s.holder == session && (s.token == token || s.token == anyToken && token >= s.max)
}

// asked reports whether the standing grant is that of the entry's request.
func (s state) asked(in entry) bool {
	return in.session != 0 && s.holder == in.session && s.request == in.Request
}

// settled fixes a token that was not known.
func (s state) settled(token lock.Token) state {
	s.token, s.max = token, max(s.max, token)
	return s
}

// die applies a session's silent death, if it is not dead and time allows.
func (m *model) die(s state, session uint32, ret time.Duration) (state, bool) {
	if s.isDead(session) {
		return s, true
	}
	if ret < m.alive[session] {
		return s, false
	}
	s.now = max(s.now, m.alive[session])
	return s.kill(session), true
}

// vacate applies a silent end of the standing grant, if there is one and time allows.
// Where both a lapse and a death can be it, the milder bound holds.
func (m *model) vacate(s state, ret time.Duration) (state, bool) {
	switch {
	case s.holder == 0:
		return s, true
	case s.lapse > 0 && ret >= s.lapse:
		s.now = max(s.now, min(s.lapse, m.alive[s.holder]))
		return s.free(), true
	default:
		return m.die(s, s.holder, ret)
	}
}

// step applies an entry and reports whether a fenced lock can answer so.
func (m *model) step(s state, in entry) (state, bool) {
	if in.until < s.now {
		return s, false // it would have to come before an end that is already applied
	}
	if in.Status == Gone {
		return m.die(s, in.session, in.until)
	}
	switch in.Kind {
	case Acquire:
		return m.acquire(s, in)
	case Handoff:
		return m.handoff(s, in)
	case Release, Extend, Revoke:
		return m.named(s, in)
	case Abandon, Settle, LocksOf:
		return m.sought(s, in)
	case Close:
		alive := !s.isDead(in.session)
		return s.kill(in.session), alive || in.Ended == 0
	case Open, Heartbeat:
	}
	return s, !s.isDead(in.session)
}

func (m *model) acquire(s state, in entry) (state, bool) {
	dead := s.isDead(in.session)
	if in.Status == Held {
		return s, s.holder != 0 && !dead && !s.asked(in)
	}
	if in.Status == Unknown {
		if dead || s.asked(in) {
			return s, true
		}
		if free, ok := m.vacate(s, in.until); ok && !free.isDead(in.session) {
			return free.grant(in, anyToken), true
		}
		return s, true // it met another grant; the answer would have been held
	}
	if s.asked(in) && s.has(in.session, in.Answer) {
		return s.settled(in.Answer), true // the same grant again
	}
	free, ok := m.vacate(s, in.until)
	if !ok || free.isDead(in.session) || in.Answer <= free.max {
		return s, false
	}
	return free.grant(in, in.Answer), true
}

func (m *model) handoff(s state, in entry) (state, bool) {
	stands := s.has(in.from, in.Token)
	if in.Status == Lost {
		return m.over(s, in, stands)
	}
	if !stands || s.isDead(in.session) {
		return s, in.Status == Unknown
	}
	s = s.settled(in.Token)
	if in.Status == Unknown {
		return s.grant(in, anyToken), true
	}
	return s.grant(in, in.Answer), in.Answer > s.max
}

// over judges an answer that says that no such grant stands. A grant with an unknown token
// may be another one than was named.
func (m *model) over(s state, in entry, stands bool) (state, bool) {
	if !stands || s.token == anyToken && in.Token != 0 {
		return s, true
	}
	return m.vacate(s, in.until)
}

// named judges calls that name a grant by its token.
func (m *model) named(s state, in entry) (state, bool) {
	session, token := in.session, in.Token
	if in.Kind == Revoke {
		session = s.holder
		switch {
		case in.Status == OK && in.from != s.holder:
			return s, false
		case in.Status == OK:
			token = in.Answer
		case in.Token == 0:
			token = max(s.token, s.max) // whichever stands
		}
	}
	stands := s.has(session, token)
	switch {
	case in.Status == Lost:
		return m.over(s, in, stands)
	case !stands:
		return s, in.Status == Unknown
	case in.Kind == Extend:
		s = s.settled(token)
		if s.lease > 0 {
			lease := in.Lease
			if lease == 0 {
				lease = s.lease
			}
			s = s.prolong(in.Call, lease)
		}
		return s, in.Answer == token
	case in.Kind == Revoke && in.Status == OK:
		s = s.settled(token).free()
		s.max = max(s.max, in.Floor)
		return s, in.Floor > token && (in.Token == 0 || in.Token == token)
	default:
		return s.settled(token).free(), true
	}
}

// sought judges calls that look for a grant by session or request id.
func (m *model) sought(s state, in entry) (state, bool) {
	stands := s.asked(in)
	token := in.Answer
	if in.Kind != Abandon && in.Status == OK && s.isDead(in.session) {
		return s, false
	}
	if in.Kind == LocksOf {
		stands, token = s.holder == in.session, in.found
	}
	switch {
	case in.Kind == Abandon && in.Status != Lost:
		if stands {
			return s.free(), true
		}
		return s, in.Status == Unknown
	case token != 0:
		return s.settled(token), stands && s.has(in.session, token)
	case stands: // but was not found
		free, ok := m.vacate(s, in.until)
		return free, ok && (in.Kind == Abandon || in.Status != OK || !free.isDead(in.session))
	default:
		return s, true
	}
}

// never is the bound of a session that was not seen to be opened: it may die at any time.
const never = time.Duration(math.MinInt64)

// describe shows operations, one a line.
func describe(operations []Operation) string {
	var b strings.Builder
	for _, o := range operations {
		b.WriteString("\n  " + o.String())
	}
	return b.String()
}
