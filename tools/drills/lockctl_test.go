package drills_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fencelock/fencelock/adapters/client"
	"github.com/fencelock/fencelock/tools/drills"
	"github.com/fencelock/fencelock/tools/testenv"
)

// stubborn is a command whose group ignores TERM and has a grandchild that does so too;
// it writes the group's id to the file named by its argument.
const stubborn = `trap '' TERM; (trap '' TERM; while :; do sleep 0.1; done) &
echo $$ > "$1.tmp"; mv "$1.tmp" "$1"; echo holding; while :; do sleep 0.1; done`

// next reports whether any process of the group in the file is alive.
const next = `if kill -s 0 -- -"$(cat "$1")" 2>/dev/null; then echo GROUP ALIVE; else echo group gone; fi`

func runLocked(t *testing.T, server, key, ttl, wait, script string, args ...string) *drills.Process {
	t.Helper()
	argv := append([]string{"--server", server, "run", "--key", key, "--ttl", ttl, "--wait", wait, "--", "sh", "-c", script, "sh"}, args...)
	return drills.Start(t, nil, programs.Path(t, "lockctl"), argv...)
}

func TestLockctlPrintsItsToken(t *testing.T) {
	t.Parallel()
	s := startServer(t, drills.Embedded(t))
	p := runLocked(t, s.URL(), "demo", "5s", "0s", "echo token $FENCELOCK_TOKEN of $FENCELOCK_KEY")
	within(t, "lockctl run ends", p.Exited())
	if p.ExitCode() != 0 || !strings.Contains(p.Output(), "token ") || !strings.Contains(p.Output(), "of demo") {
		t.Errorf("exit %d, printed %q", p.ExitCode(), p.Output())
	}
}

func TestLossEndsTheWholeGroupBeforeTheNextHolderStarts(t *testing.T) {
	t.Parallel()
	for _, k := range each() {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			store := k.open(t)
			s := startServer(t, store)
			faults := map[string]func(*testenv.Proxy, *drills.Process){
				"network is cut":    func(p *testenv.Proxy, _ *drills.Process) { p.Cut() },
				"answers are held":  func(p *testenv.Proxy, _ *drills.Process) { p.HoldAnswers() },
				"lockctl is frozen": func(_ *testenv.Proxy, p *drills.Process) { p.Freeze() },
				"lockctl is killed": func(_ *testenv.Proxy, p *drills.Process) { p.Kill() },
			}
			for name, fault := range faults {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					key := strings.ReplaceAll(name, " ", "-")
					group := filepath.Join(t.TempDir(), "group")
					network := testenv.NewProxy(t, s.Addr)
					holder := runLocked(t, "http://"+network.Addr, key, mortal.String(), "0s", stubborn, group)
					holder.AwaitOutput(t, "holding")
					t.Cleanup(func() { killGroup(group) })
					if seen, err := exec.CommandContext(t.Context(), "sh", "-c", next, "sh", group).Output(); err != nil || !strings.Contains(string(seen), "GROUP ALIVE") {
						t.Fatalf("the probe does not see a living group: %q, %v", seen, err)
					}
					follower := runLocked(t, s.URL(), key, mortal.String(), "90s", next, group)
					eventually(t, "the next holder stands in line", func() bool {
						return dig(post(t, s, "LockService/Inspect", `{"key":"`+key+`"}`), "waiters") == 1.0
					})
					fault(network, holder)
					within(t, "the next holder ends", follower.Exited())
					if !strings.Contains(follower.Output(), "group gone") {
						t.Errorf("when the next holder started: %s\nold holder: %s", follower.Output(), holder.Output())
					}
				})
			}
		})
	}
}

// killGroup ends what a broken lockctl would leave behind.
func killGroup(file string) {
	text, err := os.ReadFile(file)
	if err != nil {
		return
	}
	if id, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil && id > 1 {
		_ = syscall.Kill(-id, syscall.SIGKILL)
	}
}

func TestTermReleasesOnlyAfterTheChildHasEnded(t *testing.T) {
	t.Parallel()
	s := startServer(t, drills.Embedded(t))
	done := filepath.Join(t.TempDir(), "done")
	holder := runLocked(t, s.URL(), "slow", "10s", "0s",
		`trap 'sleep 1; echo ended > "$1"; exit 7' TERM; echo holding; while :; do sleep 0.1; done`, done)
	holder.AwaitOutput(t, "holding")
	waiter := openSession(t, dial(t, s.URL()), "waiter", 10*time.Second)
	ended := make(chan bool, 1)
	go func() {
		if _, err := waiter.Acquire(t.Context(), "slow", client.WithWait(patience)); err != nil {
			t.Errorf("waiter: %v", err)
		}
		_, err := os.Stat(done)
		ended <- err == nil
	}()
	eventually(t, "the waiter stands in line", func() bool {
		return dig(post(t, s, "LockService/Inspect", `{"key":"slow"}`), "waiters") == 1.0
	})
	holder.Signal(syscall.SIGTERM)
	if !within(t, "the waiter is granted", ended) {
		t.Error("the lock was released while the child was still running")
	}
	within(t, "lockctl ends", holder.Exited())
	if holder.ExitCode() != 7 {
		t.Errorf("exit code %d, the child's was 7", holder.ExitCode())
	}
}
