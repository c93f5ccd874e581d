package drills

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
)

// T is the part of testing.TB that this package uses.
type T interface {
	Helper()
	Context() context.Context
	Cleanup(func())
	Logf(format string, args ...any)
	Fatalf(format string, args ...any)
	TempDir() string
}

// Programs builds the project's programs once and keeps the binaries in one
// folder until Close.
type Programs struct {
	dir   string
	mu    sync.Mutex
	built map[string]string
}

// NewPrograms makes the folder.
func NewPrograms() (*Programs, error) {
	dir, err := os.MkdirTemp("", "fencelock-drills-")
	if err != nil {
		return nil, fmt.Errorf("make folder for binaries: %w", err)
	}
	return &Programs{dir: dir, built: map[string]string{}}, nil
}

// Path builds the program in a folder under apps/, such as lockserver or payments/cmd/rail-stub, if needed and returns its
// binary. Who asks again gets the same file.
func (p *Programs) Path(t T, app string) string {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if path, ok := p.built[app]; ok {
		return path
	}
	path := filepath.Join(p.dir, filepath.Base(app))
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", path, ".")
	cmd.Dir = filepath.Join(root(), "apps", filepath.FromSlash(app))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", app, err, out)
	}
	p.built[app] = path
	return path
}

// Close removes the binaries.
func (p *Programs) Close() error {
	if err := os.RemoveAll(p.dir); err != nil {
		return fmt.Errorf("remove binaries: %w", err)
	}
	return nil
}

// root is the top of the repository that this file was compiled from.
func root() string {
	_, file, _, _ := runtime.Caller(0) //nolint:dogsled // Only the file is of interest.
	return filepath.Dir(filepath.Dir(filepath.Dir(file)))
}
