package fence_test

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/core/fence"
	"github.com/fencelock/fencelock/core/lock"
)

// privateKey is a key made from one byte, so that failures can be repeated.
func privateKey(b byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{b}, ed25519.SeedSize))
}

func publicKey(b byte) ed25519.PublicKey { return privateKey(b).Public().(ed25519.PublicKey) }

func verifier(tb testing.TB, seeds ...byte) *fence.Verifier {
	tb.Helper()
	keys := []ed25519.PublicKey{}
	for _, b := range seeds {
		keys = append(keys, publicKey(b))
	}
	v, err := fence.NewVerifier(keys...)
	if err != nil {
		tb.Fatalf("make verifier: %v", err)
	}
	return v
}

func key(tb testing.TB, namespace, name string) lock.Key {
	tb.Helper()
	k, err := lock.NewKey(namespace, name)
	if err != nil {
		tb.Fatal(err)
	}
	return k
}

const session = "0123abcd"

// expect compares what a Reader gives.
func expect(t *testing.T, what string, r fence.Reader, k lock.Key, text string, token lock.Token, want error) {
	t.Helper()
	got, err := r.Read(k, text)
	if got != token || !errors.Is(err, want) && (err != nil || want != nil) {
		t.Errorf("%s: got %d, %v, want %d, %v", what, got, err, token, want)
	}
}

func TestASignedTokenIsReadForItsKeyOnly(t *testing.T) {
	t.Parallel()
	k, v := key(t, "", "payout:1"), verifier(t, 1)
	s := fence.NewSigner(privateKey(1))
	for _, token := range []lock.Token{1, 33, math.MaxInt64} {
		text := s.Sign(k, token, lock.NewSessionID().Hash())
		expect(t, "a signed token", v, k, text, token, nil)
		expect(t, "its number alone", fence.Unsigned{}, k, text, token, nil)
	}
	text := s.Sign(k, 33, session)
	expect(t, "another key", v, key(t, "", "payout:2"), text, 0, lock.ErrDenied)
	expect(t, "another namespace", v, key(t, "other", "payout:1"), text, 0, lock.ErrDenied)
	expect(t, "a key that is the other's start", v, key(t, "", "payout:1/a"), text, 0, lock.ErrDenied)
	expect(t, "no key", v, lock.Key{}, text, 0, lock.ErrDenied)
}

func TestWhatWasNotSignedIsDenied(t *testing.T) {
	t.Parallel()
	k, v := key(t, "", "payout:1"), verifier(t, 1)
	s := fence.NewSigner(privateKey(1))
	text := s.Sign(k, 33, session)
	part := strings.Split(text, ".")
	join := func(parts ...string) string { return strings.Join(parts, ".") }
	other := strings.Split(fence.NewSigner(privateKey(2)).Sign(k, 33, session), ".")
	later := strings.Split(s.Sign(k, 34, session), ".")
	cases := map[string]string{
		"a number":                              "33",
		"the highest number":                    strconv.Itoa(math.MaxInt64),
		"a higher number":                       join("34", part[1], part[2], part[3]),
		"the highest number with a signature":   join(strconv.Itoa(math.MaxInt64), part[1], part[2], part[3]),
		"the signature of another number":       join("33", part[1], part[2], later[3]),
		"another session":                       join(part[0], part[1], "0123abce", part[3]),
		"another signer":                        join(other...),
		"another signer under the known one":    join(part[0], part[1], part[2], other[3]),
		"the known signer under another's name": join(part[0], other[1], part[2], part[3]),
		"no signature but zeros":                join(part[0], part[1], part[2], strings.Repeat("A", 86)),
	}
	for what, text := range cases {
		expect(t, what, v, k, text, 0, lock.ErrDenied)
	}
	// Every single bit of the signature counts.
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	for i := range part[3] {
		at := strings.IndexByte(alphabet, part[3][i])
		changed := part[3][:i] + string(alphabet[at^32]) + part[3][i+1:]
		expect(t, "a changed signature", v, k, join(part[0], part[1], part[2], changed), 0, lock.ErrDenied)
	}
}

func TestKeysCanBeChanged(t *testing.T) {
	t.Parallel()
	k := key(t, "", "payout:1")
	before, after := fence.NewSigner(privateKey(1)).Sign(k, 33, session), fence.NewSigner(privateKey(2)).Sign(k, 34, session)
	expect(t, "the old key", verifier(t, 1), k, before, 33, nil)
	expect(t, "the new key, not known yet", verifier(t, 1), k, after, 0, lock.ErrDenied)
	expect(t, "the old key of two", verifier(t, 1, 2), k, before, 33, nil)
	expect(t, "the new key of two", verifier(t, 2, 1), k, after, 34, nil)
	expect(t, "the old key, taken away", verifier(t, 2), k, before, 0, lock.ErrDenied)
	expect(t, "a key that is given twice", verifier(t, 2, 2), k, after, 34, nil)
}

func TestAVerifierNeedsKeys(t *testing.T) {
	t.Parallel()
	for what, keys := range map[string][]ed25519.PublicKey{
		"no key":      nil,
		"a short key": {publicKey(1)[:31]},
		"a nil key":   {publicKey(1), nil},
		"a long key":  {append(publicKey(1), 0)},
	} {
		if v, err := fence.NewVerifier(keys...); v != nil || !errors.Is(err, lock.ErrInvalid) {
			t.Errorf("%s: got %v, %v", what, v, err)
		}
	}
}

func TestATokenHasOneForm(t *testing.T) {
	t.Parallel()
	k, v := key(t, "", "payout:1"), verifier(t, 1)
	text := fence.NewSigner(privateKey(1)).Sign(k, 33, session)
	number, rest, _ := strings.Cut(text, ".")
	part := strings.Split(text, ".")
	malformed := []string{
		"", " ", "0", "00", "-1", "+1", "-0", "01", "1 ", " 1", "1\n", "1_000", "0x10", "1e3", "1.", ".1", "1.0", "1,2", "33, 33",
		"٣", "１", "9223372036854775808", "99999999999999999999", "18446744073709551649", "1\x00", "nan", "null", `"33"`,
		"0" + text, "+" + text, " " + text, text + " ", text + "\n", text + ".", text + "=", text + "==", text + "A", text[:len(text)-1],
		text + "," + text, text + ", " + text, number + ".." + rest, number + "." + rest[1:], rest,
		number + "." + strings.ToUpper(part[1]) + "." + part[2] + "." + part[3],
		number + "." + part[1] + "." + strings.ToUpper(part[2]) + "." + part[3],
		number + "." + part[1] + ".0123abc." + part[3],
		number + "." + part[1] + ".." + part[3],
		number + "." + part[1] + "." + part[2] + ".",
		number + "." + part[1] + "." + part[2],
		number + "." + part[1],
		number + "." + part[1] + "." + part[2] + "." + part[3][:85] + "\n",
		number + "." + part[1] + "." + part[2] + "." + part[3][:43] + "\n" + part[3][43:],
		number + "." + part[1] + "." + part[2] + "." + part[3][:43] + "\r\n" + part[3][45:],
		number + "." + part[1] + "." + part[2] + "." + part[3][:85] + "/",
		number + "." + part[1] + "." + part[2] + "." + spareBits(part[3]),
		strings.Repeat("1", 1<<20), strings.Repeat(".", 200), strings.Repeat("1.", 60),
	}
	for _, text := range malformed {
		expect(t, strconv.Quote(text[:min(len(text), 200)]), fence.Unsigned{}, k, text, 0, lock.ErrInvalid)
		expect(t, strconv.Quote(text[:min(len(text), 200)]), v, k, text, 0, lock.ErrInvalid)
	}
	expect(t, "the least number", fence.Unsigned{}, k, "1", 1, nil)
	expect(t, "the highest number", fence.Unsigned{}, k, "9223372036854775807", math.MaxInt64, nil)
}

// spareBits is the same signature for a decoder that does not look at the last bits.
func spareBits(encoded string) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	last := strings.IndexByte(alphabet, encoded[len(encoded)-1])
	return encoded[:len(encoded)-1] + string(alphabet[last|1])
}

// TestWhatIsSignedWithoutSenseIsReadByNobody: the Signer has no errors, so the readers must refuse.
func TestWhatIsSignedWithoutSenseIsReadByNobody(t *testing.T) {
	t.Parallel()
	k, v, s := key(t, "", "payout:1"), verifier(t, 1), fence.NewSigner(privateKey(1))
	for _, text := range []string{s.Sign(k, 0, session), s.Sign(k, -5, session), s.Sign(k, 1, ""), s.Sign(k, 1, "a.b")} {
		expect(t, text, v, k, text, 0, lock.ErrInvalid)
	}
}

func FuzzRead(f *testing.F) {
	k, s := key(f, "", "payout:1"), fence.NewSigner(privateKey(1))
	v := verifier(f, 1, 2)
	for _, text := range []string{
		"1", "0", "-1", "33", "9223372036854775807", "9223372036854775808", "1.2.3.4", "33,34", "",
		s.Sign(k, 33, session), s.Sign(k, math.MaxInt64, session), s.Sign(key(f, "", "a"), 33, session),
		fence.NewSigner(privateKey(2)).Sign(k, 33, session), fence.NewSigner(privateKey(3)).Sign(k, 33, session),
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		number, err := fence.Unsigned{}.Read(k, text)
		if digits, _, _ := strings.Cut(text, "."); (err == nil) != (number > 0) || err == nil && digits != strconv.Itoa(int(number)) {
			t.Errorf("%q is read as %d, %v", text, number, err)
		}
		token, err := v.Read(k, text)
		if err == nil && (token != number || !signedByUs(k, token, text)) {
			t.Errorf("%q is believed", text)
		}
		if code := lock.CodeOf(err); err != nil && code != lock.CodeInvalid && code != lock.CodeDenied || err != nil && token != 0 {
			t.Errorf("%q gives %d, %v", text, token, err)
		}
	})
}

// signedByUs reports whether a text is byte for byte what one of the signers writes.
func signedByUs(k lock.Key, token lock.Token, text string) bool {
	parts := strings.Split(text, ".")
	return len(parts) == 4 && (text == fence.NewSigner(privateKey(1)).Sign(k, token, parts[2]) ||
		text == fence.NewSigner(privateKey(2)).Sign(k, token, parts[2]))
}
