package client

import "time"

// reckoner turns an answer into the local deadline that it supports. sent and
// received are readings of the clock around the call; guaranteed is what the
// store promised. It is a seam so that tests can watch wrong ways fail.
type reckoner func(sent, received, guaranteed time.Duration, margin float64) time.Duration

// reckon counts from the moment of sending: the store decided at some time
// after it, so the guarantee holds at least until sent + guaranteed. The moment of
// receipt says nothing, since an answer may have been under way for any time.
func reckon(sent, _, guaranteed time.Duration, margin float64) time.Duration {
	return sent + usable(guaranteed, margin)
}

// usable is the part of a guarantee that the client lets itself use.
func usable(guaranteed time.Duration, margin float64) time.Duration {
	return time.Duration(float64(guaranteed) * (1 - margin))
}

// within limits a duration that came over the wire to what can be true.
func within(d, most time.Duration) time.Duration { return max(0, min(d, most)) }
