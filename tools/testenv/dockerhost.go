package testenv

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
)

// envDockerHost is how the library is told where published ports are.
const envDockerHost = "TESTCONTAINERS_HOST_OVERRIDE"

// setHost keeps the library from taking a foreign machine for Docker's host. Where the file
// /.dockerenv exists it believes to be in a container and looks for the ports that it
// published at a gateway; on a virtual machine made from a container image that is wrong: the
// default gateway is a machine of someone else's. If an interface of this machine carries the gateway
// address of Docker's bridge, then the daemon runs here and its ports are on loopback.
func setHost(ctx context.Context, docker *testcontainers.DockerClient) error {
	if _, err := os.Stat("/.dockerenv"); err != nil {
		return nil //nolint:nilerr // No such file: the library is right.
	}
	if _, set := os.LookupEnv(envDockerHost); set {
		return nil
	}
	bridge, err := docker.NetworkInspect(ctx, "bridge", client.NetworkInspectOptions{})
	if err != nil {
		return fmt.Errorf("inspect Docker's bridge: %w", err)
	}
	var gateways []netip.Addr
	for _, pool := range bridge.Network.IPAM.Config {
		gateways = append(gateways, pool.Gateway)
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return fmt.Errorf("list own addresses: %w", err)
	}
	if bridgeIsOurs(gateways, own) {
		return os.Setenv(envDockerHost, "127.0.0.1")
	}
	return nil
}

// bridgeIsOurs reports whether one of our own addresses is the bridge's gateway.
func bridgeIsOurs(gateways []netip.Addr, own []net.Addr) bool {
	for _, address := range own {
		prefix, err := netip.ParsePrefix(address.String())
		if err != nil {
			continue
		}
		for _, gateway := range gateways {
			if gateway.IsValid() && prefix.Addr().Unmap() == gateway.Unmap() {
				return true
			}
		}
	}
	return false
}
