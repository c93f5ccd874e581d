package port

import (
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/fencelock/fencelock/core/lock"
)

// endOfListing parts the name of a listing from where a page of it ended.
const endOfListing = "\x00\x00"

// Open checks a page and returns its size and where the page before it ended, which is empty for the first one
// only. The listing is named with all that narrows it, such as its namespace. A token may be forged, so valid decides
// whether last could have come from this listing. Errors are [lock.ErrInvalid].
func (p Page) Open(listing string, valid func(last string) bool) (last string, size int, err error) {
	if p.Size < 1 || p.Size > MaxPageSize {
		return "", 0, lock.Invalid("page_size", fmt.Sprintf("must be 1 to %d", MaxPageSize))
	}
	if p.Token == "" {
		return "", p.Size, nil
	}
	text, err := base64.RawURLEncoding.DecodeString(p.Token)
	last, ours := strings.CutPrefix(string(text), listing+endOfListing)
	if err != nil || !ours || last == "" || !valid(last) {
		return "", 0, lock.Invalid("page_token", "is not one of this listing")
	}
	return last, p.Size, nil
}

// PageToken is the Token that continues a listing behind last, for [Page.Open] under the same name. It hides
// nothing: last is readable in it.
func PageToken(listing, last string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(listing + endOfListing + last))
}
