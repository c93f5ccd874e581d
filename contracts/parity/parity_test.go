package parity_test

import (
	"testing"

	"github.com/fencelock/fencelock/contracts/parity"
)

// TestReference: the store as it should be passes.
func TestReference(t *testing.T) {
	t.Parallel()
	parity.RunParity(t, referenceHarness())
}
