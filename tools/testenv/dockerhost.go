package testenv

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"

	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
)

// envDockerHost is how a user, and we, tell the library where published ports are.
const envDockerHost = "TESTCONTAINERS_HOST_OVERRIDE"

const loopback = "127.0.0.1"

var errForeignHost = errors.New("cannot tell at which address Docker publishes ports; set " + envDockerHost +
	" to it (127.0.0.1 if the daemon runs on this machine)")

// dockerFacts are what the address of published ports is decided from.
type dockerFacts struct {
	// override is what the user set, if set.
	override string
	// daemon is the URL of the daemon, such as unix:///var/run/docker.sock.
	daemon string
	// container: the file /.dockerenv exists.
	container bool
	// bridge is the name of the daemon's bridge interface, subnets its networks.
	bridge  string
	subnets []netip.Prefix
	// own are the interfaces of this machine.
	own map[string][]netip.Prefix
}

// publishedHost decides at which address the daemon publishes ports. It never guesses: where the
// file /.dockerenv exists, the library would look for the ports at a gateway, in the end at the
// default route's, and on a virtual machine made from a container image that is a machine of
// someone else's. Only if the daemon's bridge is an interface of this machine is it known that the
// daemon runs here; else the user has to say.
func (f *dockerFacts) publishedHost() (string, error) {
	if f.override != "" {
		return f.override, nil
	}
	daemon, err := url.Parse(f.daemon)
	if err != nil {
		return "", fmt.Errorf("read address of Docker daemon: %w", err)
	}
	switch {
	case daemon.Scheme != "unix" && daemon.Hostname() != "":
		return daemon.Hostname(), nil
	case daemon.Scheme != "unix":
		return "", errForeignHost
	case !f.container, f.bridgeIsOurs():
		return loopback, nil
	default:
		return "", errForeignHost
	}
}

// bridgeIsOurs reports whether the daemon's bridge is an interface of this machine. Its name and
// an address in its subnet are asked for: a container has an address there too, but no bridge,
// and not every daemon tells the bridge's own address.
func (f *dockerFacts) bridgeIsOurs() bool {
	if f.bridge == "" {
		return false
	}
	for _, address := range f.own[f.bridge] {
		for _, subnet := range f.subnets {
			if subnet.Contains(address.Addr()) {
				return true
			}
		}
	}
	return false
}

// dockerHost gathers the facts and decides. The library is told where it would decide otherwise.
func dockerHost(ctx context.Context, docker *testcontainers.DockerClient) (string, error) {
	facts := dockerFacts{override: os.Getenv(envDockerHost), daemon: docker.DaemonHost()}
	if _, err := os.Stat("/.dockerenv"); err == nil {
		facts.container = true
		if err := facts.lookAround(ctx, docker); err != nil {
			return "", err
		}
	}
	host, err := facts.publishedHost()
	if err != nil {
		return "", err
	}
	if facts.container && facts.override == "" {
		if err := os.Setenv(envDockerHost, host); err != nil {
			return "", fmt.Errorf("set %s: %w", envDockerHost, err)
		}
	}
	return host, nil
}

// lookAround reads the daemon's bridge and this machine's interfaces.
func (f *dockerFacts) lookAround(ctx context.Context, docker *testcontainers.DockerClient) error {
	found, err := docker.NetworkInspect(ctx, "bridge", client.NetworkInspectOptions{})
	if err != nil {
		return fmt.Errorf("inspect Docker's bridge: %w", err)
	}
	f.bridge = found.Network.Options["com.docker.network.bridge.name"]
	for _, pool := range found.Network.IPAM.Config {
		f.subnets = append(f.subnets, pool.Subnet)
	}
	interfaces, err := net.Interfaces()
	if err != nil {
		return fmt.Errorf("list interfaces: %w", err)
	}
	f.own = map[string][]netip.Prefix{}
	for _, i := range interfaces {
		addresses, err := i.Addrs()
		if err != nil {
			return fmt.Errorf("list addresses of %s: %w", i.Name, err)
		}
		for _, address := range addresses {
			if prefix, err := netip.ParsePrefix(address.String()); err == nil {
				f.own[i.Name] = append(f.own[i.Name], prefix)
			}
		}
	}
	return nil
}
