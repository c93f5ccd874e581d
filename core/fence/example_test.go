package fence_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/fencelock/fencelock/core/fence"
	"github.com/fencelock/fencelock/core/lock"
)

// A holder that woke up late is refused once a newer one has written.
func ExampleGuard() {
	ctx, guard := context.Background(), fence.New(newMemory())

	fmt.Println("34 claims:", guard.Admit(ctx, "account:4711", 34))
	fmt.Println("34 writes:", guard.AdmitBy(ctx, fence.Equal, "account:4711", 34))

	err := guard.AdmitBy(ctx, fence.Equal, "account:4711", 33)
	fmt.Println("33 wakes up:", errors.Is(err, lock.ErrFencedOut))
	if refused, ok := errors.AsType[*fence.FencedOutError](err); ok {
		fmt.Println(refused.Presented, "came after", refused.Highest)
	}
	// Output:
	// 34 claims: <nil>
	// 34 writes: <nil>
	// 33 wakes up: true
	// 33 came after 34
}

// A holder that an operator has revoked is refused, though nobody has come after it yet.
func ExampleFollower() {
	ctx, stop := context.WithCancel(context.Background())
	marks := newMemory()
	guard := fence.New(marks)
	fmt.Println("34 claims:", guard.Admit(ctx, "acc-7", 34))

	follower := fence.Follower{
		Revocations: func(context.Context) iter.Seq2[lock.Revocation, error] { // client.Revocations(ctx, namespace)
			return func(yield func(lock.Revocation, error) bool) {
				key, _ := lock.NewKey("", "payout:acc-7")
				yield(lock.Revocation{Key: key, PreviousToken: 34, Floor: 35}, nil)
			}
		},
		Resources: func(key lock.Key) []string {
			if account, ours := strings.CutPrefix(key.Name(), "payout:"); ours {
				return []string{account}
			}
			return nil
		},
		Marks: marks,
		Report: func(resource string, floor lock.Token, err error) {
			fmt.Println(resource, "is at", floor, err)
			stop() // a resource follows as long as it runs
		},
	}
	follower.Run(ctx)

	fmt.Println(guard.AdmitBy(context.Background(), fence.Equal, "acc-7", 34))
	fmt.Println("36 claims:", guard.Admit(context.Background(), "acc-7", 36))
	// Output:
	// 34 claims: <nil>
	// acc-7 is at 35 <nil>
	// acc-7: fenced out: token 34 is not 35
	// 36 claims: <nil>
}

// A resource that does not trust its callers' numbers believes only those that were signed for its key.
func ExampleVerifier() {
	signer := fence.NewSigner(privateKey(1)) // at the lock service
	key, _ := lock.NewKey("", "payout:4711")
	text := signer.Sign(key, 34, lock.NewSessionID().Hash())

	verifier, err := fence.NewVerifier(publicKey(1)) // at the resource
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(verifier.Read(key, text))
	fmt.Println(verifier.Read(key, "9223372036854775807"))
	// Output:
	// 34 <nil>
	// 0 the token must be signed
}
