// Package experiment is the fencing experiment: what a lock alone cannot prevent, and what a fence prevents.
//
// One run: executor A works on two payouts, and the network holds its submission to the rail for the one (the site
// [AtRail]) and its posting for the other (the site [AtLedger]). A is frozen. Its session dies, executor B gets both
// locks and brings both payouts to their end. A is thawed and the two held calls arrive. A ends, and each payout is
// judged.
//
// The services have a switch each that turns their fence off, which makes four [Position]s. Where a fence stands before
// the site, the late call is refused; where none does, money moves twice or the ledger is wrong, and a run that
// corrupts nothing there is a broken experiment. [Expect] says what must come of each position and site.
//
// A run that did not come to the point, because a call was not held, or A was thawed too soon, or the late call never
// arrived, has shown nothing: it is [Inconclusive], which is never a pass.
package experiment
