// Package trial runs single cases of the parity suite without failing whoever runs them, and says what became of each.
//
// It is for what a binding of the suite must not have: stores with planted bugs, which some case has to catch, and stores
// under a disturbance that entitles them to say that they cannot answer, but to nothing that is not so.
package trial
