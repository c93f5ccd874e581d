package rail

import (
	"context"

	"github.com/fencelock/fencelock/core/lock"
)

// Intend is the first half of a submission, for tests of a proxy that dies after it.
func (s *Store) Intend(ctx context.Context, token lock.Token, o Order) (Submission, error) {
	return s.intend(ctx, token, o)
}

// Send is the second half, without the writing of the outcome.
func (c *Client) Send(ctx context.Context, o Order) (Outcome, error) {
	a, err := c.send(ctx, o)
	return a.outcome, err
}
