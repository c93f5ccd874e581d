package etcd_test

import (
	"testing"

	"github.com/fencelock/fencelock/contracts/parity"
)

func TestParity(t *testing.T) { parity.RunParity(t, parity.Harness{New: newFixture}) }
