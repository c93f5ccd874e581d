package testenv_test

import (
	"net"
	"testing"

	"github.com/fencelock/fencelock/tools/testenv"
)

// TestNoAddressIsGivenTwice, also while nobody listens there, and across the end of a block of ports.
func TestNoAddressIsGivenTwice(t *testing.T) {
	t.Parallel()
	given := map[string]bool{}
	for range 450 {
		address := testenv.FreeAddress(t)
		if given[address] {
			t.Fatalf("%s was given twice", address)
		}
		given[address] = true
	}
	listener, err := net.Listen("tcp", testenv.FreeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	_ = listener.Close()
}
