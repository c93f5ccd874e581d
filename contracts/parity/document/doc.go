// Package document holds tables of the project's documents to the code, so that a reference cannot
// drift from what it describes. Such a table stands between two comments, the first of which
// names it and the test that checks it:
//
//	<!-- table error-codes: adapters/rpc TestErrorCodes -->
//	| code | Connect code | meaning |
//	|---|---|---|
//	| `LOCK_LOST` | `failed_precondition` | the grant is over |
//	<!-- end -->
//
// The test says what the rows are. A cell that only people can write is [Prose] there: it is kept
// as it is, and must not be empty. Run with its flag -update the test writes the table; cells of prose
// stay with their row, whose first cell is its name, and are empty in a new row until somebody fills them.
package document
