package gate

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"strings"

	"google.golang.org/protobuf/proto"

	v1 "github.com/fencelock/fencelock/contracts/api/fencelock/payments/v1"
	fencelockv1 "github.com/fencelock/fencelock/contracts/api/fencelock/v1"
)

// Answer is what the service said to a held call.
type Answer struct {
	// Status is the HTTP status; 502 where the service did not answer.
	Status int
	// Body is JSON for an error, else a message in the encoding of the call.
	Body []byte
}

// OK is what [Answer.Code] says of a call that was carried out.
const OK = "OK"

// Code is [OK], or the code of the refusal: that of the closed set of either service, such as FENCED_OUT or DUPLICATE, or else
// Connect's own.
func (a Answer) Code() string {
	if a.Status == http.StatusOK {
		return OK
	}
	var refusal struct {
		Code    string
		Details []struct{ Type, Value string }
	}
	if err := json.Unmarshal(a.Body, &refusal); err != nil {
		return http.StatusText(a.Status)
	}
	for _, d := range refusal.Details {
		value, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(d.Value, "="))
		if err != nil {
			continue
		}
		locks, payments := new(fencelockv1.ErrorDetail), new(v1.ErrorDetail)
		switch {
		case d.Type == string(locks.ProtoReflect().Descriptor().FullName()) && proto.Unmarshal(value, locks) == nil:
			return strings.TrimPrefix(locks.GetCode().String(), codePrefix)
		case d.Type == string(payments.ProtoReflect().Descriptor().FullName()) && proto.Unmarshal(value, payments) == nil:
			return strings.TrimPrefix(payments.GetCode().String(), codePrefix)
		}
	}
	return refusal.Code
}

// codePrefix stands before the names of codes on the wire.
const codePrefix = "ERROR_CODE_"

// answer is a response that is kept in memory.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(status int) {
	if a.status == 0 && status >= http.StatusOK {
		a.status = status
	}
}

// Write implements http.ResponseWriter.
func (a *answer) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(b) //nolint:wrapcheck // A buffer does not fail.
}

// copyTo hands the response on. Its receiver may be gone.
func (a *answer) copyTo(w http.ResponseWriter) {
	maps.Copy(w.Header(), a.header)
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body.Bytes())
}
