package embedded

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// ErrInUse says that another process has the directory.
var ErrInUse = errors.New("the data directory is in use by another process")

// claim makes the directory ours until release is called or the process ends. etcd itself would wait for
// the other process for ever.
func claim(dir string) (release func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create data directory: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(dir, "claim"), os.O_CREATE|os.O_RDWR, 0o600) //nolint:gosec // the operator names the directory
	if err != nil {
		return nil, fmt.Errorf("claim data directory: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = file.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w: %s", ErrInUse, dir)
		}
		return nil, fmt.Errorf("claim data directory: %w", err)
	}
	return func() { _ = file.Close() }, nil
}
