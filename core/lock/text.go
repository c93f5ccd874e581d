package lock

import (
	"unicode"
	"unicode/utf8"
)

// Limits of what an operator writes into the audit log.
const (
	// MinReasonRunes is the least an operator must write (clause REV-01).
	MinReasonRunes = 8
	// MaxReasonRunes bounds a reason.
	MaxReasonRunes = 1024
)

// CheckOperator checks who revokes: the rules of [NewOwner].
func CheckOperator(s string) error {
	if err := checkText("operator", s); err != nil {
		return err
	}
	if n := utf8.RuneCountInString(s); n < 1 || n > MaxOwnerRunes {
		return Invalid("operator", "must be 1 to 64 characters")
	}
	return nil
}

// CheckReason checks why an operator revokes: 8 to 1024 characters of printable text.
func CheckReason(s string) error {
	if err := checkText("reason", s); err != nil {
		return err
	}
	if n := utf8.RuneCountInString(s); n < MinReasonRunes || n > MaxReasonRunes {
		return Invalid("reason", "must be 8 to 1024 characters")
	}
	return nil
}

// checkText refuses what could break or disguise a log line: invalid UTF-8,
// control characters (NUL, newline, escape) and format characters (such as
// U+202E, which turns the reading direction).
func checkText(field, s string) error {
	if !utf8.ValidString(s) {
		return Invalid(field, "must be valid UTF-8")
	}
	for _, r := range s {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029' {
			return Invalid(field, "must not hold control or format characters")
		}
	}
	return nil
}
