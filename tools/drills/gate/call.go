package gate

import (
	"fmt"
	"net/http"
	"path"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	v1 "github.com/fencelock/fencelock/contracts/api/fencelock/payments/v1"
	"github.com/fencelock/fencelock/core/lock"
)

// The methods whose calls name a payout.
const (
	Submit    = "Submit"
	Lookup    = "Lookup"
	GetPayout = "GetPayout"
	Claim     = "Claim"
	Advance   = "Advance"
	Post      = "Post"
)

// Call is what a gate sees of a request.
type Call struct {
	// Method is the last part of the procedure, such as Submit.
	Method string
	// Payout that it is about; empty where it names none.
	Payout string
	// To is the state that an Advance writes, such as RAIL_ACKED; empty for other methods.
	To string
	// Token as the header has it.
	Token string
}

// TokenHeader is the header that carries the token.
const TokenHeader = "Fencelock-Token"

// read takes a request apart. One that cannot be read names no payout.
func read(r *http.Request, body []byte) Call {
	call := Call{Method: path.Base(r.URL.Path), Token: r.Header.Get(TokenHeader)}
	switch call.Method {
	case Submit:
		call.Payout = parse(r, body, &v1.SubmitRequest{}).GetPayout()
	case Lookup:
		call.Payout = parse(r, body, &v1.LookupRequest{}).GetPayout()
	case GetPayout:
		call.Payout = parse(r, body, &v1.GetPayoutRequest{}).GetId()
	case Claim:
		call.Payout = parse(r, body, &v1.ClaimRequest{}).GetId()
	case Post:
		call.Payout = parse(r, body, &v1.PostRequest{}).GetId()
	case Advance:
		m := parse(r, body, &v1.AdvanceRequest{})
		call.Payout, call.To = m.GetId(), strings.TrimPrefix(m.GetTo().String(), "PAYOUT_STATE_")
	}
	return call
}

// parse reads the message of a unary call of Connect.
func parse[M proto.Message](r *http.Request, body []byte, m M) M {
	if strings.HasPrefix(r.Header.Get("Content-Type"), "application/json") {
		_ = protojson.Unmarshal(body, m)
	} else {
		_ = proto.Unmarshal(body, m)
	}
	return m
}

// Number is the token in the header, which is a decimal number or a signed form that begins with one.
func (c Call) Number() (lock.Token, error) {
	text, _, _ := strings.Cut(c.Token, ".")
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n <= 0 {
		return 0, fmt.Errorf("read token of %s %s: %q is none", c.Method, c.Payout, c.Token)
	}
	return lock.Token(n), nil
}
