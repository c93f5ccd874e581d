package testenv

import (
	"net/netip"
	"testing"
)

func prefixes(texts ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

func TestPublishedHostIsNeverGuessed(t *testing.T) {
	t.Parallel()
	const socket = "unix:///var/run/docker.sock"
	subnet := prefixes("172.17.0.0/16")
	ethernet := prefixes("192.0.2.2/24")
	cases := []struct {
		name  string
		facts *dockerFacts
		want  string // empty: refused
	}{
		{"plain host", &dockerFacts{daemon: socket}, loopback},
		{"virtual machine that looks like a container, with the daemon's bridge", &dockerFacts{
			daemon: socket, container: true, bridge: "docker0", subnets: subnet,
			own: map[string][]netip.Prefix{"eth0": ethernet, "docker0": prefixes("172.17.0.1/16")},
		}, loopback},
		{"container beside the daemon's others, with an address in the subnet", &dockerFacts{
			daemon: socket, container: true, bridge: "docker0", subnets: subnet,
			own: map[string][]netip.Prefix{"eth0": prefixes("172.17.0.2/16")},
		}, ""},
		{"container without any address in the subnet", &dockerFacts{
			daemon: socket, container: true, bridge: "docker0", subnets: subnet,
			own: map[string][]netip.Prefix{"eth0": ethernet},
		}, ""},
		{"container with a bridge of another daemon", &dockerFacts{
			daemon: socket, container: true, bridge: "docker0", subnets: subnet,
			own: map[string][]netip.Prefix{"docker0": prefixes("172.30.0.1/16")},
		}, ""},
		{"daemon that names no bridge", &dockerFacts{
			daemon: socket, container: true, subnets: subnet,
			own: map[string][]netip.Prefix{"": prefixes("172.17.0.1/16")},
		}, ""},
		{"daemon that names no subnet", &dockerFacts{
			daemon: socket, container: true, bridge: "docker0",
			own: map[string][]netip.Prefix{"docker0": prefixes("172.17.0.1/16")},
		}, ""},
		{"the user says so", &dockerFacts{daemon: socket, container: true, override: "docker.internal"}, "docker.internal"},
		{"remote daemon that the user named", &dockerFacts{daemon: "tcp://build.internal:2376"}, "build.internal"},
		{"daemon behind something without an address", &dockerFacts{daemon: "npipe:////./pipe/docker_engine"}, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := c.facts.publishedHost()
			if got != c.want || (err == nil) != (c.want != "") {
				t.Fatalf("host %q and error %v, want %q", got, err, c.want)
			}
		})
	}
}
