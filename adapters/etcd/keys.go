package etcd

import (
	"crypto/sha256"
	"encoding/hex"
	"math"
	"strings"

	"github.com/fencelock/fencelock/core/lock"
)

// keyspace is the prefix of everything that one Fencelock keeps in an etcd,
// with its trailing slash.
type keyspace string

// The folders under the prefix.
const (
	auditFolder   = "a/" // a/<namespace>/<how new>: audit records, the newest first; no namespace means all
	floorFolder   = "f/" // f/<namespace>/<key>: what revocations have condemned
	grantFolder   = "g/" // g/<namespace>/<key>: grants
	metaKey       = "meta"
	sessionFolder = "s/" // s/<hash of the session id>: session records
	capFolder     = "x/" // x/<namespace>/<key>: leases of grants
	// afterCaps sorts behind every capFolder key, so that [sessionFolder, afterCaps) and
	// [grantFolder, afterCaps) are ranges for one watch each.
	afterCaps = "y"
)

func (p keyspace) grant(k lock.Key) string { return string(p) + grantFolder + k.String() }

func (p keyspace) limit(k lock.Key) string { return string(p) + capFolder + k.String() }

func (p keyspace) floor(k lock.Key) string { return string(p) + floorFolder + k.String() }

// session is where a session's record stands. An id is a secret, and etcd logs keys.
func (p keyspace) session(id lock.SessionID) string {
	sum := sha256.Sum256([]byte(id.Reveal()))
	return string(p) + sessionFolder + hex.EncodeToString(sum[:sessionDigits/2])
}

// sessionDigits is the length of a session's name among the keys.
const sessionDigits = 32

// isHex reports whether the text is n lower-case hex digits.
func isHex(text string, n int) bool {
	return len(text) == n && strings.Trim(text, "0123456789abcdef") == ""
}

// audit is where the record of an act stands. The newest comes first, which is the order that
// etcd reads in; one without a namespace concerns all of them.
func (p keyspace) audit(namespace string, id auditID) string {
	return p.audits(namespace) + (math.MaxInt64 - id).String()
}

func (p keyspace) audits(namespace string) string { return string(p) + auditFolder + namespace + "/" }

// auditID returns the id of the act whose record stands at a raw key.
func (p keyspace) auditID(raw []byte) (auditID, bool) {
	_, rest := p.split(raw)
	_, name, _ := strings.Cut(rest, "/")
	inverse, ok := parseAuditID(name)
	return math.MaxInt64 - inverse, ok
}

func (p keyspace) meta() string { return string(p) + metaKey }

func (p keyspace) folder(name string) string { return string(p) + name }

// split returns the folder of a raw key, with its slash, and the rest.
func (p keyspace) split(raw []byte) (folder, rest string) {
	text, ours := strings.CutPrefix(string(raw), string(p))
	if !ours || len(text) < 2 || text[1] != '/' {
		return "", ""
	}
	return text[:2], text[2:]
}

// lockKey returns the key that a raw key of the folder is about; ok is false
// for what this package never wrote.
func (p keyspace) lockKey(folder string, raw []byte) (key lock.Key, ok bool) {
	in, rest := p.split(raw)
	namespace, name, cut := strings.Cut(rest, "/")
	if in != folder || !cut {
		return lock.Key{}, false
	}
	key, err := lock.NewKey(namespace, name)
	return key, err == nil
}
