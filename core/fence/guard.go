package fence

import (
	"context"
	"fmt"

	"github.com/fencelock/fencelock/core/lock"
)

// HighWater keeps the mark of each resource: the highest token that it has admitted; 0 before the first.
type HighWater interface {
	// Advance compares the token with the resource's mark by the rule and, if the rule admits it, raises the mark to
	// it: in one atomic step, on which all processes that write to the resource agree. It changes nothing if it
	// refuses. A refusal is a Verdict, not an error; errors are of the closed set of core/lock: [lock.ErrInvalid] as
	// [Check] has it, and [lock.ErrContention] or [lock.ErrNotLeader] where the marks could not be asked. After an error
	// nothing is admitted, though the mark may have been raised.
	Advance(ctx context.Context, resource string, token lock.Token, rule Rule) (Verdict, error)
}

// Verdict is what a [HighWater] decided.
type Verdict struct {
	// Admitted: the token may write.
	Admitted bool
	// Highest is the resource's mark after the decision.
	Highest lock.Token
}

// Guard decides which tokens may write to a resource. It is safe for concurrent use if its [HighWater] is.
type Guard struct{ marks HighWater }

// New returns a Guard over marks.
func New(marks HighWater) *Guard { return &Guard{marks: marks} }

// Admit is [Guard.AdmitBy] with the rule [Above]: for the first write of a grant.
func (g *Guard) Admit(ctx context.Context, resource string, token lock.Token) error {
	return g.AdmitBy(ctx, Above, resource, token)
}

// AdmitBy returns nil if the rule admits the token, which then is the resource's mark. A token that is refused is a
// [*FencedOutError]: the caller must not write. All other errors are [lock.ErrInvalid], or those of the marks, and
// admit nothing either.
func (g *Guard) AdmitBy(ctx context.Context, rule Rule, resource string, token lock.Token) error {
	if err := Check(resource, token, rule); err != nil {
		return err
	}
	verdict, err := g.marks.Advance(ctx, resource, token, rule)
	if err != nil {
		return fmt.Errorf("advance mark: %w", err)
	}
	if !verdict.Admitted {
		return &FencedOutError{Resource: resource, Rule: rule, Presented: token, Highest: verdict.Highest}
	}
	return nil
}

// FencedOutError says that a resource refused a token. It matches [lock.ErrFencedOut]. It is terminal for the grant:
// trying again cannot help, and the caller must not write elsewhere under this token either.
type FencedOutError struct {
	Resource string
	Rule     Rule
	// Presented is the token that was refused.
	Presented lock.Token
	// Highest is the resource's mark. With the rule [Equal] it may be below Presented: then the grant's first
	// write has not been admitted.
	Highest lock.Token
}

// Error implements error. It names the resource, so it is for logs; [lock.Error]'s message is for any caller.
func (e *FencedOutError) Error() string { return e.Resource + ": " + e.message() }

// Unwrap makes errors.Is(err, lock.ErrFencedOut) true and [lock.CodeOf] know the error.
func (e *FencedOutError) Unwrap() error {
	return &lock.Error{Code: lock.CodeFencedOut, Message: e.message()}
}

func (e *FencedOutError) message() string {
	relation := "not above"
	switch e.Rule {
	case Above:
	case Equal:
		relation = "not"
	case NotBelow:
		relation = "below"
	}
	return fmt.Sprintf("fenced out: token %d is %s %d", e.Presented, relation, e.Highest)
}
