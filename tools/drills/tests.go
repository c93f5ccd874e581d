package drills

import (
	"flag"
	"fmt"
	"os"
	"strconv"

	"github.com/fencelock/fencelock/tools/testenv"
)

// RunTests runs the tests of a package with a test environment and programs, which use is given before, and returns the exit code.
// atOnce is how many of the tests go on at the same time.
func RunTests(m testenv.Runner, atOnce int, use func(*Programs)) int {
	flag.Parse()
	programs, err := NewPrograms()
	if err == nil {
		defer func() { _ = programs.Close() }()
		use(programs)
		err = flag.Set("test.parallel", strconv.Itoa(atOnce))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return testenv.Main(m).Run()
}
