// Package reference is the store as it should be, in memory: the executable
// specification behind the parity suite.
//
// A [World] is the store. It is a state machine under one mutex: every call is
// one atomic step at one instant, and before each step everything that is
// overdue at that instant is over (see World.pass). So expiry is exact, and
// the order of steps is the store's order.
//
// A [Client] is one lock server's view of the world. Its link can be cut, its
// answers can be held back, and it can stop for good.
//
// A [Mutant] is a planted bug: it replaces single steps of a world by wrong
// ones and names the clause of the suite that must then fail. The steps
// themselves stay free of switches.
package reference
