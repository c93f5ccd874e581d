package command

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"connectrpc.com/connect"

	"github.com/fencelock/fencelock/adapters/client"
	"github.com/fencelock/fencelock/core/lock"
)

// translate rebuilds the service's error from what a call returned; other errors stay as they are.
func translate(err error) error {
	if errors.As(err, new(*connect.Error)) {
		return client.Translate(err)
	}
	return err
}

// explain gives err's text with better words for what the transport says.
func explain(err error, servers []string) string {
	known, ok := errors.AsType[*lock.Error](err)
	if !ok {
		return err.Error()
	}
	words := known.Error()
	switch {
	case known.Code == lock.CodeInvalid && known.Field == "" && strings.HasSuffix(known.Message, "404 Not Found"):
		words = fmt.Sprintf("%s is not a lock server (404); the RPC port is 8470 by default", strings.Join(servers, ","))
	case known.Code == lock.CodeContention && errors.Is(known, context.DeadlineExceeded):
		words = "the server or the store did not answer in time"
	}
	return strings.Replace(err.Error(), known.Error(), words, 1)
}

// noHandshake reports whether TLS was not agreed on, so that no request was sent.
func noHandshake(err error) bool {
	return errors.Is(err, http.ErrSchemeMismatch) ||
		errors.As(err, new(tls.RecordHeaderError)) || errors.As(err, new(*tls.CertificateVerificationError))
}
