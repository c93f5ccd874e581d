// Package guard puts a fence into etcd: the mark of a resource is raised in the transaction that writes to it.
//
// # Use
//
//	marks := guard.New(client, "myapp/fence/")
//	…
//	_, err := marks.Do(ctx, "account:4711", token, fence.Above, clientv3.OpPut("myapp/account/4711", balance))
//
// The writes are carried out if the token is admitted, and else none of them is. Which rule is right
// when is said in core/fence.
//
// A mark stands at the prefix and the resource's name, as a decimal number of exactly 19 digits with leading zeros. etcd compares
// values as bytes, and so 9 would be above 10; with all numbers of one length the order of bytes is
// that of numbers, up to the highest token. A value that is not in that form refuses all, or nearly all, tokens until it is
// corrected: it never lets an older one in, unless it is made to be below it.
//
// # Lost answers
//
// Where the answer to a transaction is lost, it may have been carried out, or may yet be: an error that is ambiguous.
// What to do depends on the rule.
//
//   - Above: ask again. If the first one was carried out, the repetition is refused, and the [fence.FencedOutError] has the very
//     token as its Highest. If a grant does not write by Above but once, that says: what was asked for has been
//     done. A Highest above the token says that the grant is over, and leaves it open what the first one did.
//   - NotBelow and Equal: a repetition is admitted and writes once more. That is fine for writes that put the
//     same values. A repetition, or the first one if it comes late, may come after other writes of the same
//     grant, and the fence does not order those: it orders grants. A grant that goes on after such an error compares what it
//     writes over as well, in a nested transaction ([clientv3.OpTxn]).
//
// The client library does not send a transaction twice by itself.
package guard
