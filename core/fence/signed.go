package fence

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"strconv"

	"github.com/fencelock/fencelock/core/lock"
)

// Signer writes tokens in the signed form. Who grants has it, nobody else. It is safe for concurrent use.
type Signer struct {
	key ed25519.PrivateKey
	id  string
}

// NewSigner returns a Signer. The key is one of [ParsePrivateKey] or of crypto/ed25519; a slice of another size panics.
func NewSigner(key ed25519.PrivateKey) *Signer {
	return &Signer{key: key, id: keyID(ed25519.PublicKey(key[ed25519.SeedSize:]))}
}

// Sign returns the token's signed form: "<token>.<key id>.<session hash>.<signature>". The signature binds
// namespace, key, token and session. sessionHash is what [lock.SessionID.Hash] gives; what is signed with anything
// else, or with a token that is not positive, no [Reader] takes.
func (s *Signer) Sign(key lock.Key, token lock.Token, sessionHash string) string {
	signature := ed25519.Sign(s.key, message(key, token, sessionHash))
	return strconv.FormatInt(int64(token), 10) + "." + s.id + "." + sessionHash + "." +
		base64.RawURLEncoding.EncodeToString(signature)
}

// Verifier is the [Reader] that believes only what a [Signer] wrote for the very key. It asks nobody. It is safe
// for concurrent use.
type Verifier struct {
	keys map[string]ed25519.PublicKey
}

// NewVerifier returns a Verifier that believes any of the keys. Several are for a change of keys: give the new one
// to every Verifier, then to the signers, and take the old one away when no grant that it signed is in use.
// No key, one of a wrong size, or two that share an id are [lock.ErrInvalid].
func NewVerifier(keys ...ed25519.PublicKey) (*Verifier, error) {
	v := &Verifier{keys: make(map[string]ed25519.PublicKey, len(keys))}
	for _, key := range keys {
		if len(key) != ed25519.PublicKeySize {
			return nil, lock.Invalid("public_key", "must be an Ed25519 key")
		}
		id := keyID(key)
		if other, taken := v.keys[id]; taken && !other.Equal(key) {
			return nil, lock.Invalid("public_key", "has the id of another one")
		}
		v.keys[id] = key
	}
	if len(v.keys) == 0 {
		return nil, lock.Invalid("public_key", "must not be missing")
	}
	return v, nil
}

// Read implements [Reader]. A token without a signature, by a signer that is not known, or with a signature that is
// not of this key, number and session is [lock.ErrDenied].
func (v *Verifier) Read(key lock.Key, text string) (lock.Token, error) {
	p, err := parse(text)
	if err != nil {
		return 0, err
	}
	if !p.signed {
		return 0, denied("the token must be signed")
	}
	public, known := v.keys[p.keyID]
	if !known {
		return 0, denied("the token is signed by nobody that is trusted here")
	}
	if !ed25519.Verify(public, message(key, p.token, p.session), p.signature) {
		return 0, denied("the token's signature is not one for this key")
	}
	return p.token, nil
}

func denied(text string) error {
	return &lock.Error{Code: lock.CodeDenied, Message: text}
}

// message is what is signed. No namespace, key or number holds a NUL, so it can be read in one way only. The first
// line keeps a signature from meaning anything elsewhere.
func message(key lock.Key, token lock.Token, sessionHash string) []byte {
	return []byte("fencelock fencing token 1\n" + key.Namespace() + "\x00" + key.Name() + "\x00" +
		strconv.FormatInt(int64(token), 10) + "\x00" + sessionHash)
}

// keyID names a public key: the first eight bytes of its SHA-256.
func keyID(key ed25519.PublicKey) string {
	sum := sha256.Sum256(key)
	return hex.EncodeToString(sum[:keyIDDigits/2])
}
