package reference

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

// listGrants lists live grants by key.
func (w *World) listGrants(now time.Time, namespace, prefix string) []lock.Grant {
	var grants []lock.Grant
	for key, g := range w.grants {
		if key.Namespace() == namespace && strings.HasPrefix(key.Name(), prefix) {
			grants = append(grants, g.view(now))
		}
	}
	slices.SortFunc(grants, func(a, b lock.Grant) int { return strings.Compare(a.Key.Name(), b.Key.Name()) })
	return grants
}

// listSessions lists live sessions, oldest first.
func (w *World) listSessions() []*session {
	return slices.SortedFunc(maps.Values(w.sessions), func(a, b *session) int { return cmp.Compare(a.serial, b.serial) })
}

// listRevocations lists audit records, newest first (clause REV-04). One of no key is of every namespace.
func (w *World) listRevocations(namespace string) []lock.Revocation {
	var revocations []lock.Revocation
	for _, r := range slices.Backward(w.audit) {
		if r.Key.Namespace() == namespace || r.Key.IsZero() {
			revocations = append(revocations, r)
		}
	}
	return revocations
}

// cut returns one page of items and the token of the next. Items are in order
// of their positions, rising, or falling where descending. The token holds
// the listing's name and the last position, so that one of another listing is
// refused, and changes between two pages neither repeat nor skip what stays.
func cut[E any](items []E, listing string, page port.Page, descending bool, position func(E) string) ([]E, string, error) {
	if page.Size < 1 || page.Size > port.MaxPageSize {
		return nil, "", lock.Invalid("page_size", fmt.Sprintf("must be 1 to %d", port.MaxPageSize))
	}
	if page.Token != "" {
		last, err := decode(listing, page.Token)
		if err != nil {
			return nil, "", err
		}
		items = items[sort.Search(len(items), func(i int) bool {
			if descending {
				return position(items[i]) < last
			}
			return position(items[i]) > last
		}):]
	}
	if len(items) <= page.Size {
		return items, "", nil
	}
	items = items[:page.Size]
	return items, encode(listing, position(items[page.Size-1])), nil
}

// encode makes a page token.
func encode(listing, position string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(listing + "\x00" + position))
}

// decode returns the position in a page token of the listing.
func decode(listing, token string) (string, error) {
	text, err := base64.RawURLEncoding.DecodeString(token)
	position, ours := strings.CutPrefix(string(text), listing+"\x00")
	if err != nil || !ours {
		return "", lock.Invalid("page_token", "is not of this listing")
	}
	return position, nil
}
