package fence

import (
	"crypto/ed25519"
	"encoding/base64"
	"strconv"
	"strings"

	"github.com/fencelock/fencelock/core/lock"
)

// Lengths of the parts of a token's text after the number.
const (
	keyIDDigits    = 16
	sessionDigits  = 8 // what lock.SessionID.Hash gives
	signatureChars = 86
)

// Reader turns the text that travels with a write into the token. The key is that of the lock which protects the
// resource, as the resource knows it: never one that the caller named beside the token, unless the resource would be
// another one for another name.
//
// Errors are [lock.ErrInvalid] for a text that is in no valid form, and [lock.ErrDenied] for one that is not to be
// believed.
type Reader interface {
	Read(key lock.Key, text string) (lock.Token, error)
}

// Unsigned is the [Reader] that believes every caller. It takes the decimal form, and from the signed form the
// number, without a look at the signature. It is for resources all of whose callers are trusted not to make tokens
// up: one who sends the highest number there is locks everyone out.
type Unsigned struct{}

// Read implements [Reader]. Its only error is [lock.ErrInvalid].
func (Unsigned) Read(_ lock.Key, text string) (lock.Token, error) {
	p, err := parse(text)
	return p.token, err
}

// parsed is the text of a token, taken apart.
type parsed struct {
	token lock.Token
	// signed: the rest is there.
	signed    bool
	keyID     string
	session   string
	signature []byte
}

// parse takes each token in one form only: no signs, spaces or leading zeros, no padding, no spare bits.
func parse(text string) (parsed, error) {
	number, rest, signed := strings.Cut(text, ".")
	token, err := parseNumber(number)
	if err != nil || !signed {
		return parsed{token: token}, err
	}
	keyID, rest, _ := strings.Cut(rest, ".")
	session, encoded, _ := strings.Cut(rest, ".")
	if !isHex(keyID, keyIDDigits) || !isHex(session, sessionDigits) {
		return parsed{}, lock.Invalid("token", "must be a number, or number.key.session.signature")
	}
	signature, ok := decodeSignature(encoded)
	if !ok {
		return parsed{}, lock.Invalid("token", "must end with a signature in unpadded base64url")
	}
	return parsed{token: token, signed: true, keyID: keyID, session: session, signature: signature}, nil
}

func decodeSignature(encoded string) (signature []byte, ok bool) {
	if len(encoded) != signatureChars {
		return nil, false
	}
	signature, err := base64.RawURLEncoding.Strict().DecodeString(encoded)
	// The decoder skips line ends; then it has read less than a signature.
	return signature, err == nil && len(signature) == ed25519.SignatureSize
}

func parseNumber(digits string) (lock.Token, error) {
	if digits == "" || digits[0] == '0' {
		return 0, lock.Invalid("token", "must be a positive number without leading zeros")
	}
	for i := range len(digits) {
		if digits[i] < '0' || digits[i] > '9' {
			return 0, lock.Invalid("token", "must be a positive number in decimal")
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return 0, lock.Invalid("token", "must be at most 9223372036854775807")
	}
	return lock.Token(n), nil
}

// isHex reports whether s is n lower-case hex digits.
func isHex(s string, n int) bool {
	if len(s) != n {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
