package parity_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/fencelock/fencelock/contracts/parity"
)

// TestMain: nothing that a case or a planted bug starts outlives it.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestReference: the store as it should be passes.
func TestReference(t *testing.T) {
	t.Parallel()
	parity.RunParity(t, referenceHarness())
}
