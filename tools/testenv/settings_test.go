package testenv

import (
	"os"
	"slices"
	"testing"
)

func TestAddressesInTheEnvironmentComeFirst(t *testing.T) {
	t.Setenv(envWay, "")
	t.Setenv(envEtcd, " 127.0.0.1:1, http://127.0.0.1:2 ,")
	server, started, err := findEtcd()
	want := []string{"127.0.0.1:1", "http://127.0.0.1:2"}
	if err != nil || !slices.Equal(server.Endpoints, want) {
		t.Fatalf("got %v and %v, want %v", server, err, want)
	}
	if started != nil {
		t.Fatal("a server was started beside the address")
	}
}

func TestForcedAddressWithoutOneFails(t *testing.T) {
	t.Setenv(envWay, wayAddress)
	t.Setenv(envEtcd, "")
	if server, _, err := findEtcd(); err == nil {
		t.Fatalf("got %v, want an error", server)
	}
}

func TestVersionComesFromTheEnvironment(t *testing.T) {
	t.Setenv(envEtcdVersion, "3.5.21")
	if got := etcdSettings().version; got != "3.5.21" {
		t.Fatalf("version %q, want 3.5.21", got)
	}
	t.Setenv(envEtcdVersion, "")
	if got := etcdSettings().version; got != EtcdVersion {
		t.Fatalf("version %q, want %s", got, EtcdVersion)
	}
}

func TestOnlyDeadProcessesAreGone(t *testing.T) {
	t.Parallel()
	if gone(os.Getpid()) {
		t.Fatal("this process counts as gone")
	}
	const never = 1 << 30 // above every system's limit
	if !gone(never) {
		t.Fatal("a process that cannot exist does not count as gone")
	}
}

func TestDockerStoppedFallsBackToALocalProcess(t *testing.T) {
	t.Setenv(envWay, "")
	t.Setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")
	p := &etcd{}
	h, err := launch(t.Context(), etcdSettings(), p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.remove() })
	if _, local := h.(*process); !local {
		t.Fatalf("got a %T, want a local process", h)
	}
	if err := p.healthy(t.Context(), h.endpoint()); err != nil {
		t.Fatal(err)
	}
}
