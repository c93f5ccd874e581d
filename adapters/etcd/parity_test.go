package etcd_test

import (
	"strings"
	"testing"

	"github.com/fencelock/fencelock/contracts/parity"
	"github.com/fencelock/fencelock/tools/testenv"
)

func TestParity(t *testing.T) {
	t.Logf("store: etcd %s", minorVersion(t))
	parity.RunParity(t, parity.Harness{New: newFixture})
}

// minorVersion is that of the server, such as 3.7.
func minorVersion(t *testing.T) string {
	t.Helper()
	endpoints := testenv.Etcd(t).Endpoints
	status, err := raw(t, endpoints).Status(t.Context(), endpoints[0])
	if err != nil {
		t.Fatalf("ask for the version: %v", err)
	}
	return status.Version[:strings.LastIndex(status.Version, ".")]
}
