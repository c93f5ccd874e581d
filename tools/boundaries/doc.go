// Package boundaries checks the rules that keep the modules apart and the code in shape. Each rule
// is a function from what it reads to its findings, so that it can be tried on a planted fault as well
// as on the repository; a rule that finds nothing anywhere proves nothing.
//
// The rules:
//
//   - the core requires no module;
//   - a module imports what the table in imports.go allows, and reaches no other sibling through those;
//   - the words of etcd's leases stay in the adapter and in what runs an etcd itself;
//   - fx is imported by applications only, testcontainers by tools/testenv only, and testing by test
//     files only (the parity suite, a test library, keeps it to one file);
//   - every sibling that a module reaches has a replace line, and go.work lists every module;
//   - every package has a doc.go, and none is named for holding this and that;
//   - functions have at most 80 lines and files 600;
//   - tests neither sleep, but in virtual time, nor skip;
//   - a migration stays as it was applied: migrations.txt has the sum of each, and is only added to.
package boundaries
