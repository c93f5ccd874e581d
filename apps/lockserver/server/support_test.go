package server_test

import (
	"net/http"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/fencelock/fencelock/tools/testenv"
)

// TestMain looks that a stopped server leaves no goroutine behind.
func TestMain(m *testing.M) {
	code := testenv.Main(m).Run()
	http.DefaultClient.CloseIdleConnections()
	if err := goleak.Find(); err != nil && code == 0 {
		_, _ = os.Stderr.WriteString("goroutines left: " + err.Error() + "\n")
		code = 1
	}
	os.Exit(code)
}
