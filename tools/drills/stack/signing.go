package stack

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"

	"github.com/fencelock/fencelock/core/fence"
	"github.com/fencelock/fencelock/core/lock"
)

// signing is what the programs are told where tokens are signed; nothing where they are bare numbers.
type signing struct {
	// signer signs as the lock server does.
	signer *fence.Signer
	// server and services are flags.
	server, services []string
}

// newSigning makes a pair of keys and writes them where the lock server finds the one, and the services the other.
func newSigning(dir string) (signing, error) {
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		return signing{}, fmt.Errorf("make signing key: %w", err)
	}
	server, services := filepath.Join(dir, "signing.pem"), filepath.Join(dir, "signing.pub.pem")
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err == nil {
		err = writeKey(server, "PRIVATE KEY", der)
	}
	if err == nil {
		der, err = x509.MarshalPKIXPublicKey(public)
	}
	if err == nil {
		err = writeKey(services, "PUBLIC KEY", der)
	}
	if err != nil {
		return signing{}, fmt.Errorf("write signing key: %w", err)
	}
	return signing{
		signer:   fence.NewSigner(private),
		server:   []string{"--lock.signing.key-file=" + server},
		services: []string{"--fence.public-key-file=" + services},
	}, nil
}

func writeKey(path, kind string, der []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600) //nolint:wrapcheck // The caller says what it was.
}

// Sign signs a number for a lock as the lock server does, whether it was granted or not. It is for a stack whose tokens are signed.
func (s *Stack) Sign(key lock.Key, number lock.Token) string {
	return s.signing.signer.Sign(key, number, "0123abcd")
}
