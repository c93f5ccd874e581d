package testenv

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

const (
	modulePath = "github.com/fencelock/fencelock/tools/testenv"
	etcdModule = "go.etcd.io/etcd/server/v3"
)

// build returns the path of an etcd binary of the version, built from its Go module. Binaries are
// kept in the user's cache folder; test processes that need one at once build it once.
func build(ctx context.Context, version string) (string, error) {
	source, err := sourceDir(ctx)
	if err != nil {
		return "", err
	}
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	sum, err := fingerprint(source, version)
	if err != nil {
		return "", err
	}
	binary := filepath.Join(cache, "etcd-"+version+"-"+sum)
	unlock, err := lockFile(binary + ".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(binary); err == nil {
		return binary, nil
	}
	return binary, compile(ctx, source, version, binary)
}

func compile(ctx context.Context, source, version, binary string) error {
	if version != EtcdVersion {
		dir, err := os.MkdirTemp("", "fencelock-etcd-build-")
		if err != nil {
			return fmt.Errorf("make build folder: %w", err)
		}
		defer os.RemoveAll(dir)
		if err := otherVersion(ctx, source, dir, version); err != nil {
			return err
		}
		source = dir
	}
	// Built beside its place and then renamed: a half-written binary is never run.
	part := binary + ".part"
	if err := runGo(ctx, source, "build", "-buildvcs=false", "-trimpath", "-o", part, "."); err != nil {
		return err
	}
	if err := os.Rename(part, binary); err != nil {
		return fmt.Errorf("keep etcd binary: %w", err)
	}
	return nil
}

// otherVersion lays a module in dir that builds the same command from another etcd.
func otherVersion(ctx context.Context, source, dir, version string) error {
	command, err := os.ReadFile(filepath.Join(source, "main.go"))
	if err != nil {
		return fmt.Errorf("read etcd command: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "main.go"), command, 0o600); err != nil {
		return fmt.Errorf("write etcd command: %w", err)
	}
	steps := [][]string{
		{"mod", "init", modulePath + "/etcd"},
		{"mod", "edit", "-require=" + etcdModule + "@v" + version},
		{"mod", "tidy"},
	}
	for _, step := range steps {
		if err := runGo(ctx, dir, step...); err != nil {
			return err
		}
	}
	return nil
}

// sourceDir finds the folder of the etcd command, also in builds that trim paths.
func sourceDir(ctx context.Context) (string, error) {
	command := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", modulePath)
	out, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("find the folder of %s: %w", modulePath, explain(err))
	}
	return filepath.Join(strings.TrimSpace(string(out)), "etcd"), nil
}

func cacheDir() (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		base = os.TempDir()
	}
	dir := filepath.Join(base, "fencelock-testenv")
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return "", fmt.Errorf("make cache folder: %w", err)
	}
	return dir, nil
}

// fingerprint names what the binary is built from.
func fingerprint(source, version string) (string, error) {
	hash := sha256.New()
	hash.Write([]byte(version))
	for _, name := range []string{"main.go", "go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join(source, name))
		if err != nil {
			return "", fmt.Errorf("read etcd command: %w", err)
		}
		hash.Write(text)
	}
	return hex.EncodeToString(hash.Sum(nil))[:12], nil
}

// lockFile holds an exclusive lock against other test processes.
func lockFile(path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), file.Close())
	}
	return func() { _ = file.Close() }, nil
}

// runGo runs a go command for a static binary, whatever the flags and workspace of the caller's.
func runGo(ctx context.Context, dir string, args ...string) error {
	command := exec.CommandContext(ctx, "go", args...)
	command.Dir = dir
	command.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=", "CGO_ENABLED=0")
	if _, err := command.Output(); err != nil {
		return fmt.Errorf("go %s: %w", strings.Join(args, " "), explain(err))
	}
	return nil
}

// explain adds what a failed command printed.
func explain(err error) error {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return fmt.Errorf("%w\n%s", err, exit.Stderr)
	}
	return err
}
