package fence_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/core/fence"
	"github.com/fencelock/fencelock/core/lock"
)

func block(t *testing.T, kind string, der []byte, err error) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

func privatePEM(t *testing.T, key any) string {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	return block(t, "PRIVATE KEY", der, err)
}

func publicPEM(t *testing.T, key any) string {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(key)
	return block(t, "PUBLIC KEY", der, err)
}

// What openssl wrote: genpkey -algorithm ed25519, and pkey -pubout of the same.
const (
	opensslPrivate = `-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEIBj7uB40WrQqnb+ORgZJX0gxdJJo1ox1/8ABmF7jOn8t
-----END PRIVATE KEY-----
`
	opensslPublic = `-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEAy9+RoOgBgXe+8G1ayOsakE+nKzblyDLhInxMPCKgmOQ=
-----END PUBLIC KEY-----
`
)

func TestKeysOfOpensslAreRead(t *testing.T) {
	t.Parallel()
	private, err := fence.ParsePrivateKey([]byte(opensslPrivate))
	if err != nil {
		t.Fatal(err)
	}
	public, err := fence.ParsePublicKeys([]byte("\n" + opensslPublic + "\r\n\n" + publicPEM(t, publicKey(2))))
	if err != nil || len(public) != 2 {
		t.Fatalf("%d keys, %v", len(public), err)
	}
	v, err := fence.NewVerifier(public...)
	if err != nil {
		t.Fatal(err)
	}
	k := key(t, "", "payout:1")
	expect(t, "the first key", v, k, fence.NewSigner(private).Sign(k, 33, session), 33, nil)
	expect(t, "the second key", v, k, fence.NewSigner(privateKey(2)).Sign(k, 33, session), 33, nil)
}

func TestFilesThatHoldSomethingElseAreInvalid(t *testing.T) {
	t.Parallel()
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	private, public := privatePEM(t, privateKey(1)), publicPEM(t, publicKey(1))
	damaged := strings.Replace(public, "\nM", "\n?", 1)
	for what, text := range map[string]string{
		"nothing": "", "space": " \n", "no PEM": "secret", "a public key": public, "two keys": private + privatePEM(t, privateKey(2)),
		"a key of another kind": privatePEM(t, curve), "something after": private + "secret", "something before": "secret\n" + private,
		"another block": strings.ReplaceAll(private, "PRIVATE KEY", "EC PRIVATE KEY"), "no DER": block(t, "PRIVATE KEY", []byte("secret"), nil),
		"a damaged key first": strings.Replace(private, "\nM", "\n?", 1) + private,
	} {
		key, err := fence.ParsePrivateKey([]byte(text))
		if key != nil || !errors.Is(err, lock.ErrInvalid) || strings.Contains(err.Error(), "secret") {
			t.Errorf("private key, %s: got %v, %v", what, key, err)
		}
	}
	for what, text := range map[string]string{
		"nothing": "", "space": " \n", "no PEM": "secret", "a private key": private, "a private key too": public + private,
		"a key of another kind": public + publicPEM(t, curve.Public()), "something after": public + "secret", "something between": public + "x" + public,
		"another block": strings.ReplaceAll(public, "PUBLIC KEY", "CERTIFICATE"), "no DER": block(t, "PUBLIC KEY", []byte("secret"), nil),
		"a damaged key first": damaged + public, "a damaged key last": public + damaged,
	} {
		keys, err := fence.ParsePublicKeys([]byte(text))
		if keys != nil || !errors.Is(err, lock.ErrInvalid) || strings.Contains(err.Error(), "secret") {
			t.Errorf("public keys, %s: got %v, %v", what, keys, err)
		}
	}
	if key, err := fence.ParsePrivateKey([]byte(private)); err != nil || !key.Equal(privateKey(1)) {
		t.Errorf("a private key: %v", err)
	}
	if keys, err := fence.ParsePublicKeys([]byte(public)); err != nil || len(keys) != 1 || !keys[0].Equal(publicKey(1)) {
		t.Errorf("a public key: %v", err)
	}
}
