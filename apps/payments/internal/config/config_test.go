package config

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/apps/payments/internal/bank"
	"github.com/fencelock/fencelock/apps/program/settings"
)

func TestDefaultsAreSafe(t *testing.T) {
	t.Parallel()
	payment, err := LoadPayment(nil, []string{"FENCELOCK_PAYMENT_URL=postgres://db/pay", "FENCELOCK_RAIL_PROXY_URL=postgres://db/rail"})
	if err != nil || !payment.Fencing || len(payment.OpenToNetwork()) != 0 || payment.PublicKeyFile != "" {
		t.Errorf("%+v, %v", payment, err)
	}
	proxy, err := LoadProxy(nil, []string{"FENCELOCK_PAYMENT_URL=postgres://db/pay", "FENCELOCK_RAIL_PROXY_URL=postgres://db/rail"})
	if err != nil || !proxy.Fencing || len(proxy.OpenToNetwork()) != 0 || proxy.Timeout != 10*time.Second {
		t.Errorf("%+v, %v", proxy, err)
	}
	stub, err := LoadStub(nil, nil)
	if err != nil || stub.Faults() != (bank.Faults{}) || len(stub.OpenToNetwork()) != 0 {
		t.Errorf("%+v, %v", stub, err)
	}
}

func TestEachSourceCounts(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "proxy.yaml")
	text := "rail.proxy:\n  fencing.enabled: false\n  timeout: 3s\nrail.proxy.url: postgres://db/file\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := LoadProxy([]string{"--config", file, "--rail.proxy.rail=http://bank:1"}, []string{"FENCELOCK_RAIL_PROXY_TIMEOUT=4s"})
	if err != nil || c.Fencing || c.Timeout != 4*time.Second || c.Place() != "PostgreSQL at db:5432/file, rail at http://bank:1" {
		t.Errorf("%+v, %v", c, err)
	}
	stub, err := LoadStub([]string{"--rail.stub.latency=5ms", "--rail.stub.decline=0.5", "--rail.stub.lose-reply=0.25"}, nil)
	if err != nil || stub.Faults() != (bank.Faults{Latency: 5 * time.Millisecond, Decline: 0.5, LoseReply: 0.25}) {
		t.Errorf("%+v, %v", stub, err)
	}
}

func TestWhatCannotBeIsRefused(t *testing.T) {
	t.Parallel()
	for _, p := range programs() {
		for _, args := range [][]string{{"--no.such.key=1"}, {"more"}, {"--config=/does/not/exist"}} {
			if err := p.load(args...); err == nil {
				t.Errorf("%s: %q is taken", p.table, args)
			}
		}
		if err := p.load("--help"); !errors.Is(err, settings.ErrHelp) {
			t.Errorf("%s: help gives %v", p.table, err)
		}
	}
	if _, err := LoadPayment(nil, nil); err == nil || !strings.Contains(err.Error(), "FENCELOCK_PAYMENT_URL") {
		t.Errorf("no database: %v", err)
	}
	if _, err := LoadPayment(nil, []string{"FENCELOCK_PAYMENT_URL=postgres://db/pay", "FENCELOCK_PAYMENT_FENCING=false"}); err == nil {
		t.Error("a misspelt variable is taken")
	}
	if _, err := LoadProxy([]string{"--rail.proxy.url=postgres://u:hunter2@db:x/rail"}, nil); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a bad URL: %v", err)
	}
}

func TestWhatIsPrintedHidesPasswordsAndReadsBack(t *testing.T) {
	t.Parallel()
	payment, err := LoadPayment([]string{"--payment.url=postgres://u:hunter2@db/pay"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	proxy, err := LoadProxy([]string{"--rail.proxy.url=postgres://u:hunter2@db/rail", "--rail.proxy.rail=http://u:hunter2@bank:1"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	stub, err := LoadStub([]string{"--rail.stub.decline=0.5"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var first, second bytes.Buffer
	for _, write := range []func() error{
		func() error { return payment.Print(&first) }, func() error { return proxy.Print(&first) }, func() error { return stub.Print(&second) },
	} {
		if err := write(); err != nil {
			t.Error(err)
		}
	}
	if text := first.String() + payment.Place() + proxy.Place(); strings.Contains(text, "hunter2") || strings.Count(text, "xxxxx") < 3 {
		t.Errorf("printed %s", text)
	}
	file := filepath.Join(t.TempDir(), "stub.yaml")
	if err := os.WriteFile(file, second.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	if again, err := LoadStub([]string{"--config", file}, nil); err != nil || again != stub {
		t.Errorf("read back %+v, %v", again, err)
	}
	for _, usage := range []string{UsageOfPayment(), UsageOfProxy(), UsageOfStub()} {
		if !strings.Contains(usage, "admin-addr") {
			t.Errorf("usage %s", usage)
		}
	}
}

func TestAddressesThatOthersCanReachAreNamed(t *testing.T) {
	t.Parallel()
	c, err := LoadPayment([]string{"--payment.url=postgres://db/pay", "--payment.addr=0.0.0.0:1", "--payment.admin-addr=example.org:1"}, nil)
	if err != nil || !slices.Equal(c.OpenToNetwork(), []string{"payment.addr", "payment.admin-addr"}) {
		t.Errorf("%v, %v", c.OpenToNetwork(), err)
	}
}
