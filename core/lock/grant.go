package lock

import (
	"crypto/sha256"
	"encoding/binary"
	"strconv"
	"time"
)

// Token is the fencing token of a grant: positive, strictly increasing per
// key for ever. Gaps are allowed; tokens of different keys are not comparable
// (clause LOCK-02).
type Token int64

// CheckToken refuses what no grant can have.
func CheckToken(t Token) error {
	if t <= 0 {
		return Invalid("token", "must be positive")
	}
	return nil
}

// RequestID makes an acquire safe to send twice. It is scoped to (session,
// key) and never reused after the call was abandoned or its grant ended.
type RequestID string

// MaxRequestIDBytes bounds a request id.
const MaxRequestIDBytes = 64

// NewRequestID checks a request id: 1 to 64 bytes of [A-Za-z0-9._-].
func NewRequestID(s string) (RequestID, error) {
	if s == "" || len(s) > MaxRequestIDBytes {
		return "", Invalid("request_id", "must be 1 to 64 bytes")
	}
	for i := range len(s) {
		c := s[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && c != '.' && c != '_' && c != '-' {
			return "", Invalid("request_id", "may hold only letters, digits and . _ -")
		}
	}
	return RequestID(s), nil
}

// Grant is one holding of one key by one session, from acquire to release,
// death or revocation.
type Grant struct {
	Key       Key
	Session   SessionID
	Owner     Owner
	Token     Token
	RequestID RequestID
	// AcquiredAt is for people; no decision rests on it.
	AcquiredAt time.Time
	// Lease is the optional cap on the grant's life, in whole seconds; 0 means that it lives
	// as long as its session.
	Lease time.Duration
	// LeaseRemaining is how much of the lease the store still guarantees; 0 without a lease.
	LeaseRemaining time.Duration
	Metadata       map[string]string
}

// Holder is what a contended acquire learns: who stands in the way
// (clause LOCK-05). It is news of the past, never a ground for a decision.
type Holder struct {
	Owner      Owner
	Session    SessionID
	Token      Token
	AcquiredAt time.Time
	// FreeWithin is the longest that the grant can outlive this answer with
	// nobody renewing anything, in the store's terms; 0 means unknown.
	FreeWithin time.Duration
}

// Info is a plausible picture of one key, never usable for a decision
// (clause LOCK-10).
type Info struct {
	Key  Key
	Held bool
	// Grant is the zero value unless Held.
	Grant Grant
	// Floor is the highest token that a revocation has condemned; 0 if none has.
	Floor Token
}

// Revocation is one audit record: an operator ended a grant (clauses REV-01, REV-04).
type Revocation struct {
	// ID is unique and sorts by time.
	ID string
	// Key is the zero Key in the record of a raised floor, which ended all grants of all namespaces.
	Key      Key
	Operator string
	Reason   string
	At       time.Time
	// PreviousOwner, PreviousSession and PreviousToken describe the ended grant.
	PreviousOwner   Owner
	PreviousSession SessionID
	PreviousToken   Token
	// Floor is above PreviousToken; the next grant's token is above Floor.
	Floor Token
}

// Digest condenses the set of grants that a client believes it holds, so that
// a heartbeat can compare it with the store's view: the XOR, over all grants,
// of the first eight bytes (big endian) of SHA-256 over
// namespace, NUL, key, NUL, token in decimal. No grants give 0.
func Digest(grants []Grant) uint64 {
	var d uint64
	for _, g := range grants {
		d ^= DigestOne(g.Key, g.Token)
	}
	return d
}

// DigestOne is the contribution of one grant to [Digest].
func DigestOne(key Key, token Token) uint64 {
	text := key.namespace + "\x00" + key.name + "\x00" + strconv.FormatInt(int64(token), 10)
	sum := sha256.Sum256([]byte(text))
	return binary.BigEndian.Uint64(sum[:8])
}
