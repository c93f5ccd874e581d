package stack

import (
	"strconv"
	"time"

	"github.com/fencelock/fencelock/tools/drills"
	"github.com/fencelock/fencelock/tools/testenv"
)

// SessionTTL is the time to live of an executor's session: the shortest that there is.
const SessionTTL = 2 * time.Second

// executorApp is the program.
const executorApp = "payout-executor"

// Executor is one executor.
type Executor struct {
	*Service

	over bool
}

// ExecutorBinary is the file that every executor runs, whatever the backend.
func ExecutorBinary(t drills.T, programs *drills.Programs) string {
	t.Helper()
	return programs.Path(t, executorApp)
}

// StartExecutor runs an executor that works on so many payouts at a time, and returns when it is ready.
func (s *Stack) StartExecutor(name string, concurrency int) *Executor {
	s.t.Helper()
	e := s.LaunchExecutor(name, concurrency)
	e.AwaitOutput(s.t, executorApp+" ready: ")
	return e
}

// LaunchExecutor is [Stack.StartExecutor] without the wait: for one that is killed at any moment.
func (s *Stack) LaunchExecutor(name string, concurrency int) *Executor {
	s.t.Helper()
	admin := testenv.FreeAddress(s.t)
	e := &Executor{Service: &Service{Name: executorApp + " " + name, Admin: "http://" + admin}}
	e.Process = drills.Start(s.t, nil, ExecutorBinary(s.t, s.programs),
		"--payout.lock-servers="+s.Lock.URL(), "--payout.payment="+s.ToPayment.URL(), "--payout.rail="+s.ToProxy.URL(),
		"--payout.admin-addr="+admin, "--payout.owner="+name, "--payout.session-ttl="+SessionTTL.String(),
		"--payout.concurrency="+strconv.Itoa(concurrency), "--payout.poll-interval=100ms")
	s.executors = append(s.executors, e)
	return e
}

// Stop asks the executor to end and waits for it. One that was killed or stopped before is left alone.
func (e *Executor) Stop() error {
	if e.over {
		return nil
	}
	e.over = true
	return stop(e.Name, e.Process)
}

// Kill ends the executor with SIGKILL.
func (e *Executor) Kill() {
	e.over = true
	e.Process.Kill()
}

// Build builds all programs that a stack needs. The first time on a machine takes minutes.
func Build(t drills.T, programs *drills.Programs) {
	t.Helper()
	for _, app := range []string{"lockserver", bankApp, proxyApp, paymentApp, executorApp} {
		programs.Path(t, app)
	}
}
