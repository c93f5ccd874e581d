package main

import (
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// maxIdle is how much memory an idle executor may take, in kB of 1024 bytes: 25 MB of the resident set, which counts the pages of
// the program itself as well.
const maxIdle = 25_000_000 / 1024

// TestAnIdleExecutorIsSmall: also after it was busy, and while it is scraped and probed.
func TestAnIdleExecutorIsSmall(t *testing.T) {
	t.Parallel()
	s := emptyStage(t)
	p := s.launch(t, "--payout.poll-interval=50ms")
	until(t, "it is ready", func() bool { code, _ := get(t, p.admin+"/readyz"); return code == http.StatusOK })
	s.crowd(20, 10)
	until(t, "the backlog is empty", func() bool { return s.Backlog() == 0 })
	polls := s.Count("ListPayouts")
	until(t, "it is idle", func() bool {
		if code, _ := get(t, p.admin+"/metrics"); code != http.StatusOK {
			t.Fatalf("/metrics says %d", code)
		}
		return s.Count("ListPayouts") > polls+20
	})
	// The runtime gives memory back at its leisure: it is enough that it does.
	least := resident(t, p.command.Process.Pid)
	deadline := time.Now().Add(eventually)
	for least > maxIdle && time.Now().Before(deadline) {
		until(t, "it has polled again", func() bool { return s.Count("ListPayouts") > polls+20 })
		polls = s.Count("ListPayouts")
		least = min(least, resident(t, p.command.Process.Pid))
	}
	t.Logf("resident: %d kB", least)
	if least > maxIdle {
		t.Errorf("an idle executor takes %d kB, at most %d", least, maxIdle)
	}
	if err := p.command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := p.command.Wait(); err != nil {
		t.Error(err)
	}
}

// resident reads VmRSS, in kB.
func resident(t *testing.T, pid int) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^VmRSS:\s+(\d+) kB$`).FindSubmatch(status)
	if m == nil {
		t.Fatalf("no VmRSS in %s", status)
	}
	n, err := strconv.Atoi(string(m[1]))
	if err != nil {
		t.Fatal(err)
	}
	return n
}
