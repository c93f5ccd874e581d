// Command etcd is the etcd server of its own module's version, for tests.
//
// With TESTENV_DATA_DIR set it lives no longer than its standard input: when the test
// process that holds the other end is gone, however it went, the server removes that
// folder and exits. Nothing else could clean up after a test process that was killed.
package main

import (
	"io"
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() {
	if dir := os.Getenv("TESTENV_DATA_DIR"); dir != "" {
		go endWithInput(dir)
	}
	etcdmain.Main(os.Args)
}

// endWithInput never returns: the end of the input is the end of the process.
func endWithInput(dir string) {
	_, _ = io.Copy(io.Discard, os.Stdin)
	_ = os.RemoveAll(dir)
	os.Exit(0)
}
