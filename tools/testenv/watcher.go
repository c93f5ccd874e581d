package testenv

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
)

// watcher is a small process that cleans up when this process is gone, however it went.
type watcher struct {
	command *exec.Cmd
	input   io.Closer
}

// watch starts a shell that runs the script with the arguments once stop is called or this process
// is gone.
func watch(script string, env []string, args ...string) (*watcher, error) {
	// No context ends it: it waits for the end of this process.
	command := exec.Command("sh", append([]string{"-c", "read -r _\n" + script, "watcher"}, args...)...)
	command.Env = append(os.Environ(), env...)
	// An interrupt at the terminal must not reach it.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	input, err := command.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("open watcher's input: %w", err)
	}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("start watcher: %w", err)
	}
	return &watcher{command: command, input: input}, nil
}

// stop lets the watcher do its work, and waits for it. What it finds already done is no error.
func (w *watcher) stop() error {
	if w == nil {
		return nil
	}
	if err := w.input.Close(); err != nil {
		return fmt.Errorf("end watcher: %w", err)
	}
	_ = w.command.Wait()
	return nil
}
