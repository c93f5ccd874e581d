package lock

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"log/slog"
	"time"
)

// Bounds of a session's time to live and of a grant's lease; both are whole
// seconds on every backend, rounded up (clause SESS-01).
const (
	MinTTL     = 2 * time.Second
	MaxTTL     = 10 * time.Minute
	DefaultTTL = 15 * time.Second
)

// sessionIDBytes is the entropy of a session id: 128 bits.
const sessionIDBytes = 16

// SessionID is a session's secret name: who presents it may use the session.
// Printing or logging one shows only a hash prefix; [SessionID.Reveal] gives
// the text itself.
type SessionID struct{ text string }

// NewSessionID draws a fresh id: 128 random bits as 32 lower-case hex digits.
func NewSessionID() SessionID {
	var b [sessionIDBytes]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the program instead
	return SessionID{text: hex.EncodeToString(b[:])}
}

// ParseSessionID checks that s could be an id (32 lower-case hex digits) and
// returns [ErrInvalid] otherwise. It says nothing about the session being alive.
func ParseSessionID(s string) (SessionID, error) {
	if len(s) != 2*sessionIDBytes {
		return SessionID{}, Invalid("session_id", "must be 32 lower-case hex digits")
	}
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return SessionID{}, Invalid("session_id", "must be 32 lower-case hex digits")
		}
	}
	return SessionID{text: s}, nil
}

// Reveal returns the id itself: for stores, and for answers to a caller that
// presented it. Never for logs, metrics or other callers.
func (s SessionID) Reveal() string { return s.text }

// Hash returns eight hex digits that identify the session without giving
// access to it.
func (s SessionID) Hash() string {
	if s.text == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(s.text))
	return hex.EncodeToString(sum[:4])
}

// String returns the same as [SessionID.Hash], so that no format verb leaks the id.
func (s SessionID) String() string { return s.Hash() }

// GoString guards %#v like String guards %v.
func (s SessionID) GoString() string { return "lock.SessionID(" + s.Hash() + ")" }

// LogValue guards structured logs.
func (s SessionID) LogValue() slog.Value { return slog.StringValue(s.Hash()) }

// Equal compares in constant time.
func (s SessionID) Equal(o SessionID) bool {
	return subtle.ConstantTimeCompare([]byte(s.text), []byte(o.text)) == 1
}

// IsZero reports whether s is the zero id, which no session has.
func (s SessionID) IsZero() bool { return s.text == "" }

// Session is a client's liveness relation with the service. All its grants
// live and die with it.
type Session struct {
	ID    SessionID
	Owner Owner
	// TTL is what the store granted, in whole seconds.
	TTL time.Duration
	// CreatedAt is for people; no decision rests on it.
	CreatedAt time.Time
	Metadata  map[string]string
}

// RoundTTL checks that d is within [MinTTL, MaxTTL] and rounds it up to whole
// seconds. There is no silent clamp: everything else is [ErrInvalid]. field
// names the input in the error.
func RoundTTL(field string, d time.Duration) (time.Duration, error) {
	if d < MinTTL || d > MaxTTL {
		return 0, Invalid(field, "must be 2s to 10m")
	}
	return (d + time.Second - 1).Truncate(time.Second), nil
}
