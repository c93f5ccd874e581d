package testenv

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// FreeAddress returns a loopback address that nobody listens on, for a server that a test starts by itself. No
// test gets it again, so whoever is down for a while finds it free when it comes back.
func FreeAddress(t T) string {
	t.Helper()
	address, err := freeAddress()
	if err != nil {
		t.Fatalf("%v", err)
	}
	return address
}

// Ports are given out of blocks, each of one test process. They are outside the range from which systems take ports for
// outgoing connections.
const (
	firstPort  = 20000
	blockSize  = 200
	portBlocks = 50
)

// ports are those of this process.
var ports struct { //nolint:gochecknoglobals // Ports are the machine's, and so the process's.
	mu sync.Mutex
	// claims hold the first port of each block that is ours, so that no other process takes one from it.
	claims []net.Listener
	next   int
	left   int
}

// freeAddress returns a loopback address that was not given out before and that nobody listens on.
func freeAddress() (string, error) {
	ports.mu.Lock()
	defer ports.mu.Unlock()
	for range blockSize * portBlocks {
		if ports.left == 0 {
			if err := claimBlock(); err != nil {
				return "", err
			}
		}
		address := at(ports.next)
		ports.next++
		ports.left--
		listener, err := net.Listen("tcp", address)
		if err != nil {
			continue // somebody's who knows nothing of blocks
		}
		if err := listener.Close(); err != nil {
			return "", fmt.Errorf("find free port: %w", err)
		}
		return address, nil
	}
	return "", errors.New("find free port: every port is in use")
}

// claimBlock makes a block ours until the process ends. The caller holds the mutex.
func claimBlock() error {
	var last error
	for _, block := range rand.Perm(portBlocks) { //nolint:gosec // Chance keeps test processes apart; there is nothing to guess.
		first := firstPort + block*blockSize
		claim, err := net.Listen("tcp", at(first))
		if err != nil {
			last = err
			continue
		}
		ports.claims = append(ports.claims, claim)
		ports.next, ports.left = first+1, blockSize-1
		return nil
	}
	return fmt.Errorf("find a free block of ports: %w", last)
}

func at(port int) string { return net.JoinHostPort(loopback, strconv.Itoa(port)) }
