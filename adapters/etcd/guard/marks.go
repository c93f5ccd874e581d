package guard

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/core/fence"
	"github.com/fencelock/fencelock/core/lock"
)

// digits is the length of every mark: that of the highest token.
const digits = 19

// Marks are marks under a prefix. They implement [fence.HighWater] and are safe for concurrent use.
type Marks struct {
	kv     clientv3.KV
	prefix string
}

// New returns the marks under a prefix, which must be used for nothing else. A client is a [clientv3.KV].
func New(kv clientv3.KV, prefix string) *Marks { return &Marks{kv: kv, prefix: prefix} }

// Do carries out the operations if the rule admits the token for the resource, and raises the mark, in one transaction.
// The answer is etcd's, with the responses to the operations given, in their order. They must not touch the
// marks, and be fewer than etcd allows in one transaction (128 unless configured).
//
// Errors: [*fence.FencedOutError] if the token is refused; [lock.ErrInvalid] for a resource, token or rule
// that no resource can have, and for operations that etcd does not take; [lock.ErrContention] and [lock.ErrNotLeader] if
// etcd could not be asked. Nothing was done unless the error is ambiguous.
func (m *Marks) Do(
	ctx context.Context, resource string, token lock.Token, rule fence.Rule, operations ...clientv3.Op,
) (*clientv3.TxnResponse, error) {
	answer, verdict, err := m.commit(ctx, resource, token, rule, operations)
	if err != nil {
		return nil, err
	}
	if !verdict.Admitted {
		return nil, &fence.FencedOutError{Resource: resource, Rule: rule, Presented: token, Highest: verdict.Highest}
	}
	return answer, nil
}

// Advance implements [fence.HighWater]: Do without operations, for a resource that is not in this etcd, and only where
// writes are let through one by one, as adapters/rpc/guard does within one process. A [fence.Follower] raises marks of either
// kind of resource with it, since it writes nothing else.
func (m *Marks) Advance(ctx context.Context, resource string, token lock.Token, rule fence.Rule) (fence.Verdict, error) {
	_, verdict, err := m.commit(ctx, resource, token, rule, nil)
	return verdict, err
}

// commit sends the transaction. A comparison with the value of a key that is not there is false, so it is asked what
// refuses rather than what admits; then no mark is as good as the lowest.
func (m *Marks) commit(
	ctx context.Context, resource string, token lock.Token, rule fence.Rule, operations []clientv3.Op,
) (*clientv3.TxnResponse, fence.Verdict, error) {
	if err := fence.Check(resource, token, rule); err != nil {
		return nil, fence.Verdict{}, err
	}
	key := m.prefix + resource
	read, raise := clientv3.OpGet(key), slices.Concat(operations, []clientv3.Op{clientv3.OpPut(key, encode(token))})
	txn := m.kv.Txn(ctx)
	admitted := false // what the comparison says where it admits
	switch rule {
	case fence.Above:
		txn = txn.If(clientv3.Compare(clientv3.Value(key), ">", encode(token-1))).Then(read).Else(raise...)
	case fence.NotBelow:
		txn = txn.If(clientv3.Compare(clientv3.Value(key), ">", encode(token))).Then(read).Else(raise...)
	case fence.Equal:
		txn = txn.If(clientv3.Compare(clientv3.Value(key), "=", encode(token))).Then(operations...).Else(read)
		admitted = true
	}
	answer, err := txn.Commit()
	if err != nil {
		return nil, fence.Verdict{}, translate(err)
	}
	if answer.Succeeded != admitted {
		verdict, err := refusal(answer)
		return nil, verdict, err
	}
	answer.Responses = answer.Responses[:len(operations)]
	return answer, fence.Verdict{Admitted: true, Highest: token}, nil
}

// refusal reads the mark that a transaction which was refused has found.
func refusal(answer *clientv3.TxnResponse) (fence.Verdict, error) {
	found := answer.Responses[0].GetResponseRange().GetKvs()
	if len(found) == 0 {
		return fence.Verdict{}, nil
	}
	highest, err := decode(string(found[0].GetValue()))
	if err != nil {
		return fence.Verdict{}, lock.Contention("the mark is not a number of 19 digits", false, err)
	}
	return fence.Verdict{Highest: highest}, nil
}

func encode(token lock.Token) string { return fmt.Sprintf("%0*d", digits, int64(token)) }

func decode(text string) (lock.Token, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err == nil && encode(lock.Token(n)) != text {
		err = strconv.ErrSyntax
	}
	if err != nil {
		return 0, fmt.Errorf("read mark: %w", err)
	}
	return lock.Token(n), nil
}
