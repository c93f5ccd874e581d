package port_test

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

func lower(last string) bool { return last == strings.ToLower(last) }

func refused(t *testing.T, what string, page port.Page, listing, field string) {
	t.Helper()
	last, size, err := page.Open(listing, lower)
	invalid, ok := errors.AsType[*lock.Error](err)
	if !ok || invalid.Code != lock.CodeInvalid || invalid.Field != field {
		t.Errorf("%s: %v, want an invalid %s", what, err, field)
	}
	if last != "" || size != 0 {
		t.Errorf("%s: refused, and yet %d after %q", what, size, last)
	}
}

func TestPageHasASize(t *testing.T) {
	t.Parallel()
	for _, size := range []int{-1, 0, port.MaxPageSize + 1} {
		refused(t, "a size out of range", port.Page{Size: size}, "s", "page_size")
		refused(t, "such a size with a token", port.Page{Size: size, Token: port.PageToken("s", "a")}, "s", "page_size")
	}
	for _, want := range []int{1, port.DefaultPageSize, port.MaxPageSize} {
		last, size, err := port.Page{Size: want}.Open("s", func(string) bool { return false })
		if last != "" || size != want || err != nil {
			t.Errorf("first page of %d: %d after %q, %v", want, size, last, err)
		}
	}
}

func TestPageGoesOnWhereTheLastOneEnded(t *testing.T) {
	t.Parallel()
	for _, want := range []string{"a", "a/b-c", "ä", "a\x00b", strings.Repeat("x", 1000)} {
		for _, listing := range []string{"", "s", "g\x00default\x00", "g\x00default\x00a/"} {
			token := port.PageToken(listing, want)
			last, size, err := port.Page{Size: 7, Token: token}.Open(listing, lower)
			if last != want || size != 7 || err != nil {
				t.Errorf("behind %q of %q: %d after %q, %v", want, listing, size, last, err)
			}
			if strings.Trim(token, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
				t.Errorf("%q does not fit into a URL", token)
			}
		}
	}
}

func TestPageRefusesForgedTokens(t *testing.T) {
	t.Parallel()
	const listing = "g\x00default\x00a/"
	for what, token := range map[string]string{
		"not base64":             "?",
		"base64 with padding":    base64.URLEncoding.EncodeToString([]byte(listing + "\x00\x00ab")),
		"half of it base64":      port.PageToken(listing, "abc") + "?",
		"zeros":                  "AAAA",
		"a name alone":           base64.RawURLEncoding.EncodeToString([]byte("a")),
		"a listing alone":        base64.RawURLEncoding.EncodeToString([]byte(listing)),
		"no last":                port.PageToken(listing, ""),
		"another kind":           port.PageToken("s", "a"),
		"another namespace":      port.PageToken("g\x00other\x00a/", "a"),
		"a wider listing":        port.PageToken("g\x00default\x00", "a"),
		"a narrower listing":     port.PageToken(listing+"b", "a"),
		"last that is not of it": port.PageToken(listing, "A"),
	} {
		refused(t, what, port.Page{Size: 10, Token: token}, listing, "page_token")
	}
}
