package guard

import (
	"context"
	"net/http"

	"github.com/fencelock/fencelock/core/fence"
	"github.com/fencelock/fencelock/core/lock"
)

// Header is the HTTP header, and the gRPC metadata, in which a token travels: in decimal, or in the signed form of core/fence.
const Header = "Fencelock-Token"

// Option configures an interceptor or a middleware.
type Option func(*config)

type config struct {
	// marked: a gate was given. One that is nil then panics: nothing passes for want of it.
	marked    bool
	gate      *Gate
	rule      fence.Rule
	unguarded map[string]bool
}

// WithMarks admits each token by the rule before the handler runs, and holds the turn of its resource until the
// handler has returned. The resource is the key's [lock.Key.String]. All that writes to one resource must share the gate,
// though the rules may differ.
func WithMarks(gate *Gate, rule fence.Rule) Option {
	return func(c *config) { c.marked, c.gate, c.rule = true, gate, rule }
}

// WithUnguarded lets procedures of a Connect service, such as "/acme.v1.AccountService/GetAccount", pass an interceptor
// without a token. A middleware is put before what it guards, and so does not need it.
func WithUnguarded(procedures ...string) Option {
	return func(c *config) {
		for _, p := range procedures {
			c.unguarded[p] = true
		}
	}
}

func newConfig(opts []Option) config {
	c := config{unguarded: map[string]bool{}}
	for _, opt := range opts {
		opt(&c)
	}
	return c
}

// errNoToken is the refusal of a request without the header.
func errNoToken() error { return &missingError{} }

// missingError says that there is no token: HTTP has a status of its own for that.
type missingError struct{}

func (*missingError) Error() string { return Header + ": is required" }

// Unwrap makes it one of the closed set.
func (*missingError) Unwrap() error { return lock.Invalid(Header, "is required") }

// read finds the one token of a request.
func read(reader fence.Reader, key lock.Key, header http.Header) (lock.Token, error) {
	if key.IsZero() {
		return 0, lock.Invalid("key", "must not be empty")
	}
	values := header.Values(Header)
	switch len(values) {
	case 0:
		return 0, errNoToken()
	case 1:
		token, err := reader.Read(key, values[0])
		if err != nil {
			return 0, err
		}
		return token, lock.CheckToken(token)
	}
	return 0, lock.Invalid(Header, "must be given once")
}

// admit reads the token of a request and, with marks, waits for the turn and for the fence. leave ends the turn.
func (c config) admit(
	ctx context.Context, reader fence.Reader, key lock.Key, header http.Header,
) (admitted context.Context, leave func(), err error) {
	token, err := read(reader, key, header)
	if err != nil {
		return nil, nil, err
	}
	leave = func() {}
	if c.marked {
		if leave, err = c.gate.Enter(ctx, c.rule, key.String(), token); err != nil {
			return nil, nil, err
		}
	}
	return context.WithValue(ctx, contextKey{}, token), leave, nil
}

type contextKey struct{}

// Token returns the token of the request that a handler serves; ok is false where no guard has read one.
func Token(ctx context.Context) (token lock.Token, ok bool) {
	token, ok = ctx.Value(contextKey{}).(lock.Token)
	return token, ok
}
