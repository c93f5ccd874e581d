package form

import (
	"strconv"
	"unicode"
	"unicode/utf8"

	"github.com/fencelock/fencelock/core/lock"
)

// Limits of what callers send.
const (
	// MaxIDBytes bounds the ids of accounts and payouts.
	MaxIDBytes = 64
	// MaxDestination bounds a destination, in characters; a rail's reference too.
	MaxDestination = 64
	// MaxReason bounds a reason, in characters.
	MaxReason = 256
	// MaxAmount bounds one amount of money, in minor units. Sums of nine million of the largest amounts still fit into an int64.
	MaxAmount = 1_000_000_000_000
	// MaxPage is the size of the largest page.
	MaxPage = 1000
	// DefaultPage is the size of a page whose caller names none.
	DefaultPage = 100
)

// ID checks the id of an account or a payout: 1 to 64 letters, digits, or any of ". _ : -".
func ID(field, id string) error {
	if id == "" || len(id) > MaxIDBytes {
		return lock.Invalid(field, "must be 1 to 64 characters")
	}
	for i := range len(id) {
		c := id[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && c != '.' && c != '_' && c != ':' && c != '-' {
			return lock.Invalid(field, "may hold only letters, digits and . _ : -")
		}
	}
	return nil
}

// Destination checks what names a place at the rail: 1 to 64 characters, without control or format characters.
func Destination(field, text string) error {
	if text == "" {
		return lock.Invalid(field, "must not be empty")
	}
	return Text(field, text, MaxDestination)
}

// Text checks a text for people: at most so many characters, without control or format characters, which could forge a line.
func Text(field, text string, most int) error {
	if utf8.RuneCountInString(text) > most {
		return lock.Invalid(field, "must be at most "+strconv.Itoa(most)+" characters")
	}
	for _, r := range text {
		if r == utf8.RuneError || unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) {
			return lock.Invalid(field, "may not hold control characters")
		}
	}
	return nil
}

// Amount checks money that moves: 1 to [MaxAmount] minor units.
func Amount(field string, amount int64) error {
	if amount < 1 || amount > MaxAmount {
		return lock.Invalid(field, "must be 1 to 1000000000000 minor units")
	}
	return nil
}

// Balance checks money that rests: 0 to [MaxAmount] minor units.
func Balance(field string, balance int64) error {
	if balance < 0 || balance > MaxAmount {
		return lock.Invalid(field, "must be 0 to 1000000000000 minor units")
	}
	return nil
}

// Page reads a page's size, 0 meaning [DefaultPage], and the number after which it begins, from the token of the page before.
func Page(size int32, token string) (limit int, after int64, err error) {
	if size < 0 || size > MaxPage {
		return 0, 0, lock.Invalid("page_size", "must be 0 to 1000")
	}
	if size == 0 {
		size = DefaultPage
	}
	if token == "" {
		return int(size), 0, nil
	}
	after, err = strconv.ParseInt(token, 10, 64)
	if err != nil || after < 1 || strconv.FormatInt(after, 10) != token {
		return 0, 0, lock.Invalid("page_token", "is not of a page before")
	}
	return int(size), after, nil
}

// NextPage is the token of the page after one of so many entries, the last of which has a number: none where the page was not full.
func NextPage(limit, entries int, last int64) string {
	if entries < limit {
		return ""
	}
	return strconv.FormatInt(last, 10)
}
