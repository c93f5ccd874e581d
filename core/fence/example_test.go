package fence_test

import (
	"context"
	"errors"
	"fmt"

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
