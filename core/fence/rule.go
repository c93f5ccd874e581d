package fence

import (
	"unicode/utf8"

	"github.com/fencelock/fencelock/core/lock"
)

// Rule says which tokens a mark admits. The package's essay says when each is right.
type Rule int

const (
	// Above admits a token that is above the mark, and raises the mark to it: the first write of a grant. The same
	// token is refused the second time.
	Above Rule = iota
	// Equal admits the token that is the mark, and changes nothing: every later write of a grant whose first one
	// was admitted by Above or NotBelow.
	Equal
	// NotBelow admits a token that is the mark or above it, and raises the mark to it: writes of a grant of which
	// none is known to be the first.
	NotBelow
)

// String returns "above", "equal" or "not below".
func (r Rule) String() string {
	switch r {
	case Above:
		return "above"
	case Equal:
		return "equal"
	case NotBelow:
		return "not below"
	}
	return "no rule"
}

// Admits reports whether the rule admits a token where the mark is highest; 0 is the mark that nothing has raised.
// After an admission the mark is the token, whatever the rule. A rule that is none admits nothing.
func (r Rule) Admits(token, highest lock.Token) bool {
	switch r {
	case Above:
		return token > highest
	case Equal:
		return token == highest
	case NotBelow:
		return token >= highest
	}
	return false
}

// MaxResourceBytes bounds the name of a resource.
const MaxResourceBytes = 512

// Check refuses, as [lock.ErrInvalid], what no [HighWater] needs to look at: a rule that is none, a resource that is
// not 1 to 512 bytes of UTF-8 without NUL, a token that is not positive.
func Check(resource string, token lock.Token, rule Rule) error {
	if rule != Above && rule != Equal && rule != NotBelow {
		return lock.Invalid("rule", "must be Above, Equal or NotBelow")
	}
	if resource == "" || len(resource) > MaxResourceBytes {
		return lock.Invalid("resource", "must be 1 to 512 bytes")
	}
	for _, r := range resource {
		if r == 0 {
			return lock.Invalid("resource", "must not hold NUL")
		}
	}
	if !utf8.ValidString(resource) {
		return lock.Invalid("resource", "must be valid UTF-8")
	}
	return lock.CheckToken(token)
}
