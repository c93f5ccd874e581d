// Command report compares runs of the parity suite on several backends.
//
// Each argument is name=file, where the file has what `go test -json` printed. It prints a line per
// subtest and a column per backend, and fails if a subtest failed, or if the lists of subtests
// are not the same: a suite that quietly runs less on one backend is no claim of parity.
package main
