package server

import (
	"fmt"
	"io"
	"os"

	"github.com/fencelock/fencelock/adapters/rpc"
	"github.com/fencelock/fencelock/apps/lockserver/config"
	"github.com/fencelock/fencelock/core/fence"
)

const (
	// othersAccess are the permissions of everybody but the owner of a file.
	othersAccess = 0o077
	// maxKeyBytes is far more than a key has.
	maxKeyBytes = 16 << 10
)

// newSigner reads the key that tokens are signed with; no file, no signer. Errors show nothing of the key.
func newSigner(cfg config.Config) (rpc.Signer, error) {
	path := cfg.SigningKeyFile
	if path == "" {
		return nil, nil
	}
	file, err := os.Open(path) //nolint:gosec // the operator names the file
	if err != nil {
		return nil, fmt.Errorf("lock.signing.key-file: %w", err)
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("lock.signing.key-file: %w", err)
	}
	if mode := info.Mode().Perm(); mode&othersAccess != 0 {
		return nil, fmt.Errorf("lock.signing.key-file: %s has mode %04o: others than its owner may use it; chmod 600 ends that", path, mode)
	}
	text, err := io.ReadAll(io.LimitReader(file, maxKeyBytes))
	if err != nil {
		return nil, fmt.Errorf("lock.signing.key-file: %w", err)
	}
	key, err := fence.ParsePrivateKey(text)
	if err != nil {
		return nil, fmt.Errorf("lock.signing.key-file: %s: %w", path, err)
	}
	return fence.NewSigner(key), nil
}
