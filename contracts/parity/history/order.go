package history

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fencelock/fencelock/core/lock"
)

// birth is where a token first came from: a grant, or a revocation's floor.
type birth struct {
	*Operation

	token lock.Token
	// call and first are the earliest call and return of all answers with this token.
	call, first time.Duration
}

// checkTokens checks, per key, that tokens grow with time and that each
// names one grant. It returns the number of grants.
func checkTokens(operations []Operation) (grants int, err error) {
	type name struct {
		key   lock.Key
		token lock.Token
	}
	births := map[name]*birth{}
	perKey := map[lock.Key][]*birth{}
	for i := range operations {
		o := &operations[i]
		token := o.Answer
		if o.Kind == Revoke {
			token = o.Floor
		}
		if o.Status != OK || o.Kind != Acquire && o.Kind != Handoff && o.Kind != Revoke {
			continue
		}
		id := name{o.Key, token}
		b, known := births[id]
		switch {
		case !known:
			b = &birth{Operation: o, token: token, call: o.Call, first: o.Return}
			births[id] = b
			perKey[o.Key] = append(perKey[o.Key], b)
			if o.Kind != Revoke {
				grants++
			}
		case o.Kind == Revoke || b.Kind == Revoke || b.Session != o.Session || b.Request != o.Request:
			err = errors.Join(err, fmt.Errorf("token %d was given twice:%s", token, describe([]Operation{*b.Operation, *o})))
		default: // the same request, answered again
			b.call, b.first = min(b.call, o.Call), min(b.first, o.Return)
		}
	}
	for _, some := range perKey {
		err = errors.Join(err, checkGrowth(some))
	}
	return grants, err
}

// checkGrowth checks that no token is below one that had been answered before it was asked for.
func checkGrowth(births []*birth) error {
	slices.SortFunc(births, func(a, b *birth) int { return cmp.Compare(b.token, a.token) })
	var earliest *birth // to be answered, of those with higher tokens
	for _, b := range births {
		if earliest != nil && earliest.first < b.call {
			return fmt.Errorf("token %d came after %d:%s", b.token, earliest.token,
				describe([]Operation{*earliest.Operation, *b.Operation}))
		}
		if earliest == nil || b.first < earliest.first {
			earliest = b
		}
	}
	return nil
}

// checkSessions checks that nothing succeeds for a session that was called
// after an answer had proved it over. Keys are judged apart from each other, each with a death of
// its own choice; this closes the gap.
func checkSessions(operations []Operation) error {
	over := ends(operations)
	var err error
	for _, o := range operations {
		for _, id := range []lock.SessionID{o.Session, o.From} {
			if end := over[id]; end != nil && o.Call > end.Return && o.needs(id) {
				err = errors.Join(err, fmt.Errorf("success for a session that was over:%s", describe([]Operation{*end, o})))
			}
		}
	}
	return err
}

// needs reports whether the operation's answer needs the session to be alive.
func (o Operation) needs(id lock.SessionID) bool {
	switch {
	case o.Status == Held:
		return true
	case o.Status != OK:
		return false
	case o.Kind == Close:
		return o.Ended > 0
	default:
		return id == o.Session || o.Kind == Handoff
	}
}
