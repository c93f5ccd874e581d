package testenv

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// FreeAddress returns a loopback address that nobody listens on, for a server that a test starts by itself.
func FreeAddress(t T) string {
	t.Helper()
	address, err := freeAddress()
	if err != nil {
		t.Fatalf("%v", err)
	}
	return address
}

// freeAddress returns a loopback address that nobody listens on. It is outside the range from
// which systems take ports for outgoing connections, so a server that is down for a while finds
// its port still free when it comes back.
func freeAddress() (string, error) {
	const first, count, tries = 20000, 10000, 100
	var last error
	for range tries {
		//nolint:gosec // Chance keeps test processes apart; there is nothing to guess.
		port := first + rand.IntN(count)
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		listener, err := net.Listen("tcp", address)
		if err != nil {
			last = err
			continue
		}
		if err := listener.Close(); err != nil {
			return "", fmt.Errorf("find free port: %w", err)
		}
		return address, nil
	}
	return "", fmt.Errorf("find free port: %w", last)
}
