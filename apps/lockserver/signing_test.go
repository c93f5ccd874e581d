package main

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/adapters/client"
	"github.com/fencelock/fencelock/apps/program"
	"github.com/fencelock/fencelock/core/fence"
	"github.com/fencelock/fencelock/core/lock"
)

// keyFile writes a private key, and returns also its public half and what of it must not be shown.
func keyFile(t *testing.T, mode os.FileMode) (path string, public ed25519.PublicKey, secret string) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "signing.pem")
	write(t, path, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), mode)
	return path, public, base64.StdEncoding.EncodeToString(der)[20:40]
}

// write writes a file with exactly that mode, whatever the umask.
func write(t *testing.T, path string, text []byte, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

func TestTokensAreSignedForWhoeverTrustsTheKey(t *testing.T) {
	t.Parallel()
	path, public, secret := keyFile(t, 0o400)
	p := launch(t, "--etcd.data-dir="+t.TempDir(), "--lock.signing.key-file="+path, "--log.level=debug")
	trusting, err := fence.NewVerifier(public)
	if err != nil {
		t.Fatal(err)
	}
	_, other, _ := keyFile(t, 0o400)
	strange, err := fence.NewVerifier(other)
	if err != nil {
		t.Fatal(err)
	}
	for way, options := range map[string][]client.Option{"by the stream": nil, "by unary calls": {client.WithUnaryOnly()}} {
		l := lockOf(t, p, way, options)
		if token, err := trusting.Read(l.Key(), l.TokenHeader()); err != nil || token != l.Token() {
			t.Errorf("%s: token %d is read as %d, %v", way, l.Token(), token, err)
		}
		if _, err := strange.Read(l.Key(), l.TokenHeader()); lock.CodeOf(err) != lock.CodeDenied {
			t.Errorf("%s: who trusts another key: %v", way, err)
		}
		p.waitForLog(t, `"key":"`+l.Key().Name()+`"`)
		if log := p.errors.String(); strings.Contains(log, l.SignedToken()[strings.LastIndex(l.SignedToken(), "."):]) || strings.Contains(log, secret) {
			t.Errorf("%s: the log shows a secret: %s", way, log)
		}
	}
}

// lockOf takes a lock through a client of its own.
func lockOf(t *testing.T, p *process, way string, options []client.Option) *client.Lock {
	t.Helper()
	c, err := client.New([]string{p.rpc}, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	s, err := c.OpenSession(t.Context(), "tester")
	if err != nil {
		t.Fatal(err)
	}
	l, err := s.TryAcquire(t.Context(), strings.ReplaceAll(way, " ", "-"))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestASigningKeyThatCannotBeIsOneClearLine(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	shared, _, secret := keyFile(t, 0o640)
	malformed := filepath.Join(dir, "malformed.pem")
	text, err := os.ReadFile(shared)
	if err != nil {
		t.Fatal(err)
	}
	write(t, malformed, bytes.Replace(text, []byte("-----END"), []byte("-----end"), 1), 0o600)
	for name, test := range map[string]struct{ path, says string }{
		"others may read": {shared, shared + " has mode 0640: others than its owner may use it; chmod 600"},
		"no key":          {malformed, malformed + ": private_key: must be one PEM block PRIVATE KEY and nothing else"},
		"no file":         {filepath.Join(dir, "nothing"), "nothing: no such file or directory"},
		"a directory":     {dir, "lock.signing.key-file: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out, errs bytes.Buffer
			// The store cannot be reached: the key is looked at first.
			args := []string{"--etcd.endpoints=127.0.0.1:1", "--etcd.data-dir=" + t.TempDir(), "--lock.signing.key-file=" + test.path}
			if code := lockserver().Run(args, nil, &out, &errs, nil); code != program.ExitFailed {
				t.Errorf("exit code %d, want %d", code, program.ExitFailed)
			}
			if got := errs.String(); strings.Count(got, "\n") != 1 || !strings.HasPrefix(got, "lockserver: lock.signing.key-file: ") || !strings.Contains(got, test.says) || strings.Contains(got, secret) {
				t.Errorf("it says %q, want one line with %q", got, test.says)
			}
		})
	}
}
