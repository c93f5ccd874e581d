package guard

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"github.com/fencelock/fencelock/core/fence"
	"github.com/fencelock/fencelock/core/lock"
)

// NewMiddleware returns a middleware for handlers that write. keyOf names the lock that protects what a request
// writes to; its errors refuse the request. Put it next to the handler: see the package about what must not stand between.
func NewMiddleware(
	reader fence.Reader, keyOf func(*http.Request) (lock.Key, error), opts ...Option,
) func(http.Handler) http.Handler {
	c := newConfig(opts)
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			key, err := keyOf(r)
			if err != nil {
				refuse(w, err)
				return
			}
			ctx, leave, err := c.admit(r.Context(), reader, key, r.Header)
			if err != nil {
				refuse(w, err)
				return
			}
			defer leave()
			next.ServeHTTP(w, r.WithContext(ctx))
		})
	}
}

// refusal is the body of an answer without the handler.
type refusal struct {
	Code    string            `json:"code"`
	Message string            `json:"message"`
	Details map[string]string `json:"details,omitempty"`
}

// refuse answers with an error. What is outside the closed set is told to nobody.
func refuse(w http.ResponseWriter, err error) {
	body := refusal{Code: "INTERNAL", Message: "internal error"}
	if e, ok := errors.AsType[*lock.Error](err); ok {
		body = refusal{Code: string(e.Code), Message: e.Message}
		if e.Field != "" {
			body.Message, body.Details = e.Field+": "+e.Message, map[string]string{"field": e.Field}
		}
	}
	if refused, ok := errors.AsType[*fence.FencedOutError](err); ok {
		body.Details = map[string]string{
			"presented": strconv.FormatInt(int64(refused.Presented), 10),
			"highest":   strconv.FormatInt(int64(refused.Highest), 10),
		}
	}
	header, status := w.Header(), statusOf(err)
	header.Set("Content-Type", "application/json")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	if status == http.StatusServiceUnavailable {
		header.Set("Retry-After", "1")
	}
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) //nolint:errchkjson // a caller that is gone needs no answer
}

// statusOf is the one table from the closed set to HTTP.
func statusOf(err error) int {
	if _, missing := errors.AsType[*missingError](err); missing {
		return http.StatusPreconditionRequired
	}
	switch lock.CodeOf(err) {
	case lock.CodeInvalid:
		return http.StatusBadRequest
	case lock.CodeDenied:
		return http.StatusForbidden
	case lock.CodeFencedOut:
		return http.StatusPreconditionFailed
	case lock.CodeContention, lock.CodeNotLeader:
		return http.StatusServiceUnavailable
	case lock.CodeHeld, lock.CodeLost, lock.CodeSessionDead, lock.CodeTooManyWaiters, lock.CodeUnsafeStore:
	}
	return http.StatusInternalServerError
}
