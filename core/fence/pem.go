package fence

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"

	"github.com/fencelock/fencelock/core/lock"
)

// ParsePrivateKey reads a signer's key: one PEM block PRIVATE KEY with an Ed25519 key in PKCS#8, as
// "openssl genpkey -algorithm ed25519" writes it. Everything else is [lock.ErrInvalid], whose message shows nothing
// of the key.
func ParsePrivateKey(text []byte) (ed25519.PrivateKey, error) {
	blocks, ok := decode(text, "PRIVATE KEY")
	if !ok || len(blocks) != 1 {
		return nil, lock.Invalid("private_key", "must be one PEM block PRIVATE KEY and nothing else")
	}
	parsed, _ := x509.ParsePKCS8PrivateKey(blocks[0])
	key, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return nil, lock.Invalid("private_key", "must be an Ed25519 key in PKCS#8")
	}
	return key, nil
}

// ParsePublicKeys reads the keys of a verifier: one or more PEM blocks PUBLIC KEY with Ed25519 keys in PKIX form, as
// "openssl pkey -pubout" writes them. Everything else is [lock.ErrInvalid].
func ParsePublicKeys(text []byte) ([]ed25519.PublicKey, error) {
	blocks, ok := decode(text, "PUBLIC KEY")
	if !ok || len(blocks) == 0 {
		return nil, lock.Invalid("public_key", "must be PEM blocks PUBLIC KEY and nothing else")
	}
	keys := make([]ed25519.PublicKey, 0, len(blocks))
	for _, block := range blocks {
		parsed, _ := x509.ParsePKIXPublicKey(block)
		key, ok := parsed.(ed25519.PublicKey)
		if !ok {
			return nil, lock.Invalid("public_key", "must be Ed25519 keys in PKIX form")
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// decode returns the contents of all PEM blocks; ok is false if there is anything else.
func decode(text []byte, kind string) (blocks [][]byte, ok bool) {
	begin := []byte("-----BEGIN " + kind + "-----")
	for {
		text = bytes.TrimSpace(text)
		if len(text) == 0 {
			return blocks, true
		}
		block, rest := pem.Decode(text)
		// The decoder passes over what it cannot read, up to a block that it can: then it has taken more than that block.
		if block == nil || !bytes.HasPrefix(text, begin) || bytes.Count(text[:len(text)-len(rest)], []byte("-----BEGIN")) != 1 {
			return nil, false
		}
		blocks, text = append(blocks, block.Bytes), rest
	}
}
