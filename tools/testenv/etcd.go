package testenv

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// EtcdServer is a running etcd.
type EtcdServer struct {
	// Endpoints are its client URLs or host:port addresses.
	Endpoints []string
}

// EtcdNode is a private etcd whose life the test controls.
type EtcdNode struct {
	EtcdServer
	Node
}

//nolint:gochecknoglobals // The server is shared by the tests of one process; only a global is.
var sharedEtcd = shared[*EtcdServer]{find: findEtcd}

// Etcd returns the etcd that all tests of this process share; use a key prefix of your own.
// It fails the test where no server can be had.
func Etcd(t T) *EtcdServer {
	t.Helper()
	return sharedEtcd.get(t)
}

// StartEtcd starts a private etcd with an empty store; args are added to its command line.
func StartEtcd(t T, args ...string) *EtcdNode {
	t.Helper()
	node := startNode(t, etcdSettings(), &etcd{args: args})
	return &EtcdNode{EtcdServer: EtcdServer{Endpoints: []string{node.host.endpoint()}}, Node: node}
}

func etcdSettings() settings {
	s := readSettings(envEtcdVersion)
	for address := range strings.SplitSeq(os.Getenv(envEtcd), ",") {
		if address = strings.TrimSpace(address); address != "" {
			s.addresses = append(s.addresses, address)
		}
	}
	if s.version == "" {
		s.version = EtcdVersion
	}
	return s
}

func findEtcd() (*EtcdServer, host, error) {
	s := etcdSettings()
	if s.allows(wayAddress) && len(s.addresses) > 0 {
		return &EtcdServer{Endpoints: s.addresses}, nil, nil
	}
	// The server outlives the test that needs it first, so no test's context bounds it.
	h, err := launch(context.Background(), s, &etcd{})
	if err != nil {
		return nil, nil, err
	}
	return &EtcdServer{Endpoints: []string{h.endpoint()}}, h, nil
}

// etcd is the program.
type etcd struct {
	args []string
}

func (*etcd) name() string { return "etcd" }

func (*etcd) advice() string {
	return "set " + envEtcd + " to the address of one, or start Docker (and run `make images`), " +
		"or install Go so that one can be built"
}

func (*etcd) endpoint(address string) string { return "http://" + address }

// healthy asks etcd whether it has a leader and can answer reads.
func (*etcd) healthy(ctx context.Context, endpoint string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, endpoint+"/health", http.NoBody)
	if err != nil {
		return fmt.Errorf("make health request: %w", err)
	}
	// A transport of its own, without idle connections, leaves no goroutine behind.
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("ask health: %w", err)
	}
	if err := resp.Body.Close(); err != nil {
		return fmt.Errorf("read health: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("health is %s", resp.Status)
	}
	return nil
}

// images all have the server at the path that contained runs.
func (*etcd) images(version string) (built string, official []string) {
	return "fencelock/etcd-test:" + version, []string{
		"gcr.io/etcd-development/etcd:v" + version,
		"quay.io/coreos/etcd:v" + version,
	}
}

func (e *etcd) contained(endpoint string) contained {
	const data = "/etcd-data"
	return contained{
		entrypoint: []string{"/usr/local/bin/etcd"},
		args:       append(etcdArgs(data, "http://0.0.0.0:2379", endpoint, "http://127.0.0.1:2380"), e.args...),
		port:       "2379/tcp",
		data:       data,
		stop:       "SIGTERM",
	}
}

func (e *etcd) local(ctx context.Context, version, dir, address string) (local, error) {
	binary, err := build(ctx, version)
	if err != nil {
		return local{}, err
	}
	peer, err := freeAddress()
	if err != nil {
		return local{}, err
	}
	client := e.endpoint(address)
	return local{
		path: binary,
		args: append(etcdArgs(filepath.Join(dir, "data"), client, client, "http://"+peer), e.args...),
		// It ends with its input, and removes this folder: see the command.
		env:  []string{"TESTENV_DATA_DIR=" + dir},
		stop: syscall.SIGTERM,
	}, nil
}

// etcdArgs is the command line of a one-member etcd. fsync stays on.
func etcdArgs(data, listen, advertise, peer string) []string {
	return []string{
		"--name=test",
		"--data-dir=" + data,
		"--listen-client-urls=" + listen,
		"--advertise-client-urls=" + advertise,
		"--listen-peer-urls=" + peer,
		"--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=test=" + peer,
		"--log-level=warn",
	}
}
