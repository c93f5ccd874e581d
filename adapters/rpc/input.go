package rpc

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

// These functions check only what is lost on the way into the domain's types: presence, and the
// forms of ids and names. The service checks the rest, so that no other door is more lenient.

// wholeSeconds reads an optional time to live or lease: absent is 0, which means the default further down;
// anything present, zero included, must be within the bounds.
func wholeSeconds(field string, d *durationpb.Duration) (time.Duration, error) {
	if d == nil {
		return 0, nil
	}
	value, err := duration(field, d)
	if err != nil {
		return 0, err
	}
	return lock.RoundTTL(field, value)
}

// duration refuses what the protobuf type can hold but no duration can be. Values beyond an int64 of
// nanoseconds become the largest one, which is beyond every limit.
func duration(field string, d *durationpb.Duration) (time.Duration, error) {
	if d == nil {
		return 0, nil
	}
	if err := d.CheckValid(); err != nil {
		return 0, lock.Invalid(field, "must be a valid duration")
	}
	return d.AsDuration(), nil
}

func pageOf(size int32, token string) port.Page {
	if size == 0 {
		size = port.DefaultPageSize
	}
	return port.Page{Size: int(size), Token: token}
}

// grantName is what names one grant in a request.
type grantName interface {
	GetNamespace() string
	GetKey() string
	GetSessionId() string
}

func parseName(req grantName) (lock.Key, lock.SessionID, error) {
	key, err := lock.NewKey(req.GetNamespace(), req.GetKey())
	if err != nil {
		return lock.Key{}, lock.SessionID{}, err
	}
	session, err := lock.ParseSessionID(req.GetSessionId())
	return key, session, err
}

func parseToken(n int64) (lock.Token, error) {
	token := lock.Token(n)
	return token, lock.CheckToken(token)
}
