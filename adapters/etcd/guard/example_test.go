package guard_test

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/adapters/etcd/guard"
	"github.com/fencelock/fencelock/core/fence"
	"github.com/fencelock/fencelock/core/lock"
)

// The mark is raised and the leader is written in one transaction, or neither.
func ExampleMarks_Do() { //nolint:testableexamples // needs an etcd
	lead := func(ctx context.Context, client *clientv3.Client, name string, token lock.Token) error {
		marks := guard.New(client, "myapp/fence/")
		_, err := marks.Do(ctx, "leader", token, fence.Above, clientv3.OpPut("myapp/leader", name))
		if refused, ok := errors.AsType[*fence.FencedOutError](err); ok && refused.Highest == token {
			return nil // this grant has written before, and the answer was lost
		}
		if err != nil {
			return fmt.Errorf("lead: %w", err)
		}
		return nil
	}
	_ = lead
}
