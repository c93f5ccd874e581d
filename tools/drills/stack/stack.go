package stack

import (
	"fmt"
	"net/http"
	"path/filepath"
	"syscall"
	"time"

	"github.com/fencelock/fencelock/contracts/api/fencelock/payments/v1/paymentsv1connect"
	"github.com/fencelock/fencelock/tools/drills"
	"github.com/fencelock/fencelock/tools/drills/gate"
	"github.com/fencelock/fencelock/tools/testenv"
)

// The backends, as lock.backend names them.
const (
	Etcd     = "etcd"
	Postgres = "postgres"
)

// Options say how a stack is made. The zero value is a stack on etcd with both fences.
type Options struct {
	// Backend is [Etcd], which is embedded in the lock server, or [Postgres].
	Backend string
	// PaymentUnfenced and RailUnfenced turn a fence off.
	PaymentUnfenced, RailUnfenced bool
	// RailTimeout bounds how long the proxy waits for the rail; 0 is the proxy's default.
	RailTimeout time.Duration
	// Signed has the lock server sign its tokens, and both services believe no others.
	Signed bool
}

// Service is one program that serves.
type Service struct {
	*drills.Process

	// Name of the program.
	Name string
	// URL of what it serves, and Admin of its metrics; empty where it has none.
	URL, Admin string
}

// Stack is the running system.
type Stack struct {
	// Lock is the lock server.
	Lock *drills.Server
	// Payment is the payment resource, Proxy what stands before the rail, and Bank the rail.
	Payment, Proxy, Bank *Service
	// ToPayment and ToProxy are what executors dial instead of the two.
	ToPayment, ToProxy *gate.Gate
	// PaymentURL leads to the database of the payments.
	PaymentURL string

	t         drills.T
	programs  *drills.Programs
	client    *http.Client
	payments  paymentsv1connect.PaymentServiceClient
	rail      paymentsv1connect.RailServiceClient
	signing   signing
	locks     []lockRun
	executors []*Executor
}

// Start brings everything up but executors, and returns when all are ready. All ends with the test.
func Start(t drills.T, programs *drills.Programs, o Options) *Stack {
	t.Helper()
	s := &Stack{t: t, programs: programs, client: &http.Client{Transport: new(http.Transport), Timeout: callLimit}}
	t.Cleanup(s.client.CloseIdleConnections)
	if o.Signed {
		var err error
		if s.signing, err = newSigning(t.TempDir()); err != nil {
			t.Fatalf("%v", err)
		}
	}
	store := drills.Embedded
	if o.Backend == Postgres {
		store = drills.Postgres
	}
	s.Lock = programs.StartServer(t, store(t), s.signing.server...)
	s.note("lockserver", s.Lock)
	s.startBank()
	s.startProxy(o)
	s.startPayment(o)
	s.ToPayment, s.ToProxy = s.open(s.Payment), s.open(s.Proxy)
	s.payments = paymentsv1connect.NewPaymentServiceClient(s.client, s.Payment.URL, insist())
	s.rail = paymentsv1connect.NewRailServiceClient(s.client, s.Proxy.URL, insist())
	return s
}

// The programs, as folders below apps/.
const (
	bankApp    = "payments/cmd/rail-stub"
	proxyApp   = "payments/cmd/rail-proxy"
	paymentApp = "payments/cmd/payment-resource"
)

// callLimit bounds a call of the stack's own.
const callLimit = time.Minute

// startLine is how a service is started, and what the flags are called that say where it listens.
type startLine struct {
	app          string
	addr, admin  string
	env, options []string
}

func (s *Stack) startBank() {
	s.t.Helper()
	s.Bank = s.start(startLine{
		app: bankApp, addr: "rail.stub.addr", admin: "rail.stub.admin-addr",
		options: []string{"--rail.stub.log-file=" + filepath.Join(s.t.TempDir(), "transfers.log")},
	})
}

func (s *Stack) startProxy(o Options) {
	s.t.Helper()
	line := startLine{
		app: proxyApp, addr: "rail.proxy.addr", admin: "rail.proxy.admin-addr",
		env:     []string{"FENCELOCK_RAIL_PROXY_URL=" + s.database()},
		options: append([]string{"--rail.proxy.rail=" + s.Bank.URL}, s.signing.services...),
	}
	if o.RailUnfenced {
		line.options = append(line.options, "--rail.proxy.fencing.enabled=false")
	}
	if o.RailTimeout > 0 {
		line.options = append(line.options, "--rail.proxy.timeout="+o.RailTimeout.String())
	}
	s.Proxy = s.start(line)
}

func (s *Stack) startPayment(o Options) {
	s.t.Helper()
	s.PaymentURL = s.database()
	line := startLine{
		app: paymentApp, addr: "payment.addr", admin: "payment.admin-addr",
		env:     []string{"FENCELOCK_PAYMENT_URL=" + s.PaymentURL},
		options: s.signing.services,
	}
	if o.PaymentUnfenced {
		line.options = append(line.options, "--payment.fencing.enabled=false")
	}
	s.Payment = s.start(line)
}

func (s *Stack) database() string {
	s.t.Helper()
	return testenv.Postgres(s.t).Database(s.t)
}

// start runs a service and returns when it says that it is ready.
func (s *Stack) start(line startLine) *Service {
	s.t.Helper()
	addr, admin := testenv.FreeAddress(s.t), testenv.FreeAddress(s.t)
	service := &Service{Name: filepath.Base(line.app), URL: "http://" + addr, Admin: "http://" + admin}
	args := append([]string{"--" + line.addr + "=" + addr, "--" + line.admin + "=" + admin}, line.options...)
	service.Process = drills.Start(s.t, line.env, s.programs.Path(s.t, line.app), args...)
	service.AwaitOutput(s.t, service.Name+" ready: ")
	return service
}

// open puts a gate before the service.
func (s *Stack) open(to *Service) *gate.Gate {
	s.t.Helper()
	g, err := gate.Open(to.URL)
	if err != nil {
		s.t.Fatalf("open gate before %s: %v", to.Name, err)
	}
	s.t.Cleanup(func() {
		if err := g.Close(); err != nil {
			s.t.Logf("%v", err)
		}
	})
	return g
}

// RestartLock runs the lock server again after it has ended.
func (s *Stack) RestartLock() {
	s.t.Helper()
	s.Lock.Restart(s.t)
	s.note("lockserver", s.Lock)
}

// lockRun is one run of a lock server: what it prints goes on where the run before has ended.
type lockRun struct {
	*drills.Process

	server, url string
}

func (s *Stack) note(name string, server *drills.Server) {
	s.locks = append(s.locks, lockRun{server.Process, name, server.URL()})
}

// ReplaceLock starts a lock server over an empty store of its own, whose grants know nothing of those before, and makes it the
// one that executors are told of from now on. name is whose its log lines are in the evidence: "lockserver" if it takes the place
// of the first, which must have ended.
func (s *Stack) ReplaceLock(name string) {
	s.t.Helper()
	s.Lock = s.programs.StartServer(s.t, drills.Embedded(s.t), s.signing.server...)
	s.note(name, s.Lock)
}

// Services are what serves besides the lock server and the executors, those first that use the others.
func (s *Stack) Services() []*Service { return []*Service{s.Payment, s.Proxy, s.Bank} }

// Stop ends everything in good order, the executors first, and returns which programs did not end well.
func (s *Stack) Stop() error {
	if err := s.StopExecutors(); err != nil {
		return err
	}
	for _, service := range s.Services() {
		if err := stop(service.Name, service.Process); err != nil {
			return err
		}
	}
	return stop("lockserver", s.Lock.Process)
}

// StopExecutors ends all executors in good order.
func (s *Stack) StopExecutors() error {
	for _, e := range s.executors {
		if err := e.Stop(); err != nil {
			return err
		}
	}
	return nil
}

// stopLimit bounds how long a program may take to end.
const stopLimit = 90 * time.Second

// stop asks a program to end and waits for it.
func stop(name string, p *drills.Process) error {
	p.Signal(syscall.SIGTERM)
	limit := time.NewTimer(stopLimit)
	defer limit.Stop()
	select {
	case <-p.Exited():
	case <-limit.C:
		return fmt.Errorf("stop %s: still there after %v; it printed:\n%s", name, stopLimit, p.Output())
	}
	if code := p.ExitCode(); code != 0 {
		return fmt.Errorf("stop %s: exit code %d; it printed:\n%s", name, code, p.Output())
	}
	return nil
}
