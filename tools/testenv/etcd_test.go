package testenv_test

import (
	"os"
	"testing"

	"github.com/fencelock/fencelock/tools/testenv"
)

func TestSharedServerIsOneForAllTests(t *testing.T) {
	t.Parallel()
	first, second := testenv.Etcd(t), testenv.Etcd(t)
	if first != second {
		t.Fatal("two servers, want one")
	}
	put(t, first.Endpoints[0], "value")
	if got := get(t, second.Endpoints[0]); got != "value" {
		t.Fatalf("read %q, want value", got)
	}
}

func TestNodeKeepsItsDataThroughStopAndKill(t *testing.T) {
	t.Parallel()
	node := testenv.StartEtcd(t)
	ends := []struct {
		name string
		end  func()
	}{{"kill", node.Kill}, {"stop", node.Stop}, {"restart at once", func() {}}}
	for _, e := range ends {
		put(t, node.Endpoints[0], e.name)
		e.end()
		node.Restart()
		if got := get(t, node.Endpoints[0]); got != e.name {
			t.Fatalf("after a %s the key is %q", e.name, got)
		}
	}
}

func TestPausedNodeAnswersNothingUntilResumed(t *testing.T) {
	t.Parallel()
	node := testenv.StartEtcd(t)
	node.Pause()
	answered := make(chan error, 1)
	go func() { answered <- tryPut(t.Context(), node.Endpoints[0], "value") }()
	refuse(t, node.Endpoints[0])
	node.Resume()
	if err := <-answered; err != nil {
		t.Fatalf("the request of the pause failed: %v", err)
	}
	node.Pause()
	node.Kill()
	node.Restart()
	if got := get(t, node.Endpoints[0]); got != "value" {
		t.Fatalf("key is %q, want value", got)
	}
}

func TestNodeTakesArguments(t *testing.T) {
	t.Parallel()
	node := testenv.StartEtcd(t, "--max-txn-ops=1")
	put(t, node.Endpoints[0], "value")
	if err := post(t.Context(), node.Endpoints[0]+"/v3/kv/txn", twoPuts, nil); err == nil {
		t.Fatal("two operations in a transaction were accepted, want at most one")
	}
}

func TestUnhealthyNodeSaysWhy(t *testing.T) {
	t.Parallel()
	r := &recorder{TB: t}
	failed := r.run(func() { testenv.StartEtcd(r, "--no-such-flag") })
	if !failed || !contains(r.text(), "no-such-flag") {
		t.Fatalf("failed=%v with %q, want a failure that names the flag", failed, r.text())
	}
}

func TestForcedWayWithoutAServerFailsAndSaysWhatToInstall(t *testing.T) {
	t.Setenv("FENCELOCK_TEST_ENV", "docker")
	t.Setenv("FENCELOCK_TEST_ETCD_VERSION", "0.0.0-none")
	if os.Getenv("DOCKER_HOST") == "" {
		t.Setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")
	}
	r := &recorder{TB: t}
	failed := r.run(func() { testenv.StartEtcd(r) })
	for _, want := range []string{"make images", "FENCELOCK_TEST_ETCD", "install Go"} {
		if !failed || !contains(r.text(), want) {
			t.Fatalf("failed=%v with %q, want a failure that says %q", failed, r.text(), want)
		}
	}
}
