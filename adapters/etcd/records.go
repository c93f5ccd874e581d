package etcd

import (
	"encoding/json"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/fencelock/fencelock/core/lock"
)

// The first byte of a grant's value says what ends it, so that a Txn can
// compare it: a value of kindBound is above "s", one of kindCapped below.
const (
	kindCapped = 'c' // ends with its own lease, or with its session
	kindBound  = 's' // ends with its session
	boundAbove = "s"
)

// grantRecord is the value of a grant key, behind its kind. The token is not in it: it
// is base plus the key's ModRevision, which nobody knows before the Txn is done.
type grantRecord struct {
	Session    string            `json:"s"`
	Owner      string            `json:"o"`
	Request    string            `json:"r"`
	AcquiredAt int64             `json:"t"` // Unix nanoseconds
	Lease      int64             `json:"l,omitempty"`
	TTL        int64             `json:"d"` // of the session
	Base       int64             `json:"b,omitempty"`
	Metadata   map[string]string `json:"m,omitempty"`
}

// capRecord is the value of the lease of a grant. It is written in the Txn of the grant and again
// by each extension. Token is 0 in the first, where it is base plus the key's ModRevision.
type capRecord struct {
	Session string `json:"s"`
	Base    int64  `json:"b,omitempty"`
	Token   int64  `json:"t,omitempty"`
	Lease   int64  `json:"l"`
}

// sessionRecord is the value of a session key. The lease is the key's own.
type sessionRecord struct {
	ID        string            `json:"i"`
	Owner     string            `json:"o"`
	TTL       int64             `json:"d"`
	CreatedAt int64             `json:"t"`
	Metadata  map[string]string `json:"m,omitempty"`
}

// floorRecord is the value of a floor key; the floor is base plus the key's ModRevision.
type floorRecord struct {
	Base int64 `json:"b,omitempty"`
}

// metaRecord is the value of the meta key.
type metaRecord struct {
	Base int64 `json:"b"`
}

// auditRecord is the value of an audit key. The floor is base plus the key's
// ModRevision. Namespace and Key are empty where all floors were raised.
type auditRecord struct {
	Namespace string `json:"n,omitempty"`
	Key       string `json:"k,omitempty"`
	Operator  string `json:"u"`
	Reason    string `json:"w"`
	At        int64  `json:"t"`
	Owner     string `json:"o,omitempty"`
	Session   string `json:"s,omitempty"`
	Token     int64  `json:"p,omitempty"`
	Base      int64  `json:"b,omitempty"`
}

// encode never fails: the records hold nothing that JSON cannot.
func encode(record any) string {
	text, err := json.Marshal(record)
	if err != nil {
		panic(fmt.Sprintf("encode %T: %v", record, err))
	}
	return string(text)
}

func decode[R any](kv *mvccpb.KeyValue) (R, error) {
	var record R
	if err := json.Unmarshal(kv.GetValue(), &record); err != nil {
		return record, foreign(kv, err)
	}
	return record, nil
}

// foreign is the error for a value that this package never wrote. It is
// retryable: an operator can remove the value, and nothing was decided.
func foreign(kv *mvccpb.KeyValue, cause error) *lock.Error {
	return lock.Contention("the store holds a value that is not ours", false,
		fmt.Errorf("decode %d bytes at revision %d: %w", len(kv.GetValue()), kv.GetModRevision(), cause))
}

func (r grantRecord) encode() string {
	kind := kindBound
	if r.Lease > 0 {
		kind = kindCapped
	}
	return string(kind) + encode(r)
}

// standing is a grant as it stands in the store.
type standing struct {
	grant lock.Grant
	// rev is the ModRevision of its key: it identifies this grant.
	rev int64
	// lease is the session's.
	lease int64
	base  int64
	// sessionTTL is the session's.
	sessionTTL time.Duration
}

func (s *standing) capped() bool { return s.grant.Lease > 0 }

// decodeGrant reads a grant key. Its LeaseRemaining is not known here.
func decodeGrant(key lock.Key, kv *mvccpb.KeyValue) (*standing, error) {
	if len(kv.GetValue()) == 0 || (kv.GetValue()[0] != kindBound && kv.GetValue()[0] != kindCapped) {
		return nil, foreign(kv, errKind)
	}
	var r grantRecord
	if err := json.Unmarshal(kv.GetValue()[1:], &r); err != nil {
		return nil, foreign(kv, err)
	}
	session, err := lock.ParseSessionID(r.Session)
	if err != nil {
		return nil, foreign(kv, err)
	}
	if (kv.GetValue()[0] == kindCapped) != (r.Lease > 0) {
		return nil, foreign(kv, errKind)
	}
	return &standing{
		grant: lock.Grant{
			Key: key, Session: session, Owner: lock.Owner(r.Owner),
			Token:     lock.Token(r.Base + kv.GetModRevision()),
			RequestID: lock.RequestID(r.Request), AcquiredAt: time.Unix(0, r.AcquiredAt),
			Lease: seconds(r.Lease), Metadata: r.Metadata,
		},
		rev: kv.GetModRevision(), lease: kv.GetLease(), base: r.Base, sessionTTL: seconds(r.TTL),
	}, nil
}

func decodeSession(kv *mvccpb.KeyValue) (lock.Session, error) {
	r, err := decode[sessionRecord](kv)
	if err != nil {
		return lock.Session{}, err
	}
	id, err := lock.ParseSessionID(r.ID)
	if err != nil {
		return lock.Session{}, foreign(kv, err)
	}
	return lock.Session{
		ID: id, Owner: lock.Owner(r.Owner), TTL: seconds(r.TTL),
		CreatedAt: time.Unix(0, r.CreatedAt), Metadata: r.Metadata,
	}, nil
}

func seconds(n int64) time.Duration { return time.Duration(n) * time.Second }

// wholeSeconds rounds up; durations here are whole seconds already.
func wholeSeconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }
