package lock

import (
	"strings"
	"unicode/utf8"
)

// Limits of names. A violation is [ErrInvalid] before any store is asked
// (clause LOCK-11).
const (
	// DefaultNamespace is used where a caller names none.
	DefaultNamespace = "default"
	// MaxKeyBytes bounds the name of a key.
	MaxKeyBytes = 255
	// MaxNamespaceBytes bounds the name of a namespace.
	MaxNamespaceBytes = 63
	// MaxOwnerRunes bounds an owner label, in characters.
	MaxOwnerRunes = 64
	// MaxMetadataPairs bounds the number of metadata pairs.
	MaxMetadataPairs = 16
	// MaxMetadataBytes bounds all metadata names and values together.
	MaxMetadataBytes = 4096
)

// Key names one lock inside one namespace. The zero Key is not valid; get one
// from [NewKey]. Keys are exact: "a" and "a/b" are independent locks.
type Key struct {
	namespace string
	name      string
}

// NewKey checks the grammar and returns the key. An empty namespace means
// [DefaultNamespace]. Names are 1 to 255 bytes of [A-Za-z0-9._:@/+=-] with no
// leading, trailing or double '/', and no "." or ".." segment. Namespaces are
// 1 to 63 bytes of [a-z0-9-]. Everything else is [ErrInvalid].
func NewKey(namespace, name string) (Key, error) {
	ns, err := NewNamespace(namespace)
	if err != nil {
		return Key{}, err
	}
	if name == "" {
		return Key{}, Invalid("key", "must not be empty")
	}
	if len(name) > MaxKeyBytes {
		return Key{}, Invalid("key", "must be at most 255 bytes")
	}
	for i := range len(name) {
		if !keyByte(name[i]) {
			return Key{}, Invalid("key", "may hold only letters, digits and . _ : @ / + = -")
		}
	}
	for segment := range strings.SplitSeq(name, "/") {
		switch segment {
		case "":
			return Key{}, Invalid("key", "must not start or end with '/' or hold '//'")
		case ".", "..":
			return Key{}, Invalid("key", "must not hold a '.' or '..' segment")
		}
	}
	return Key{namespace: ns, name: name}, nil
}

// NewNamespace checks a namespace; the empty string means [DefaultNamespace].
func NewNamespace(namespace string) (string, error) {
	if namespace == "" {
		return DefaultNamespace, nil
	}
	if len(namespace) > MaxNamespaceBytes {
		return "", Invalid("namespace", "must be at most 63 bytes")
	}
	for i := range len(namespace) {
		c := namespace[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return "", Invalid("namespace", "may hold only a to z, 0 to 9 and -")
		}
	}
	return namespace, nil
}

// Namespace returns the namespace, never empty for a valid key.
func (k Key) Namespace() string { return k.namespace }

// Name returns the name inside the namespace.
func (k Key) Name() string { return k.name }

// String returns "namespace/name", for people and logs.
func (k Key) String() string { return k.namespace + "/" + k.name }

// IsZero reports whether k is the zero Key, which no lock has.
func (k Key) IsZero() bool { return k.name == "" }

func keyByte(c byte) bool {
	switch {
	case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		return true
	}
	return strings.IndexByte("._:@/+=-", c) >= 0
}

// NewKeyPrefix checks a prefix for listing keys: empty, or bytes of the key
// alphabet, at most 255. A prefix may end with '/'.
func NewKeyPrefix(prefix string) (string, error) {
	if len(prefix) > MaxKeyBytes {
		return "", Invalid("prefix", "must be at most 255 bytes")
	}
	for i := range len(prefix) {
		if !keyByte(prefix[i]) {
			return "", Invalid("prefix", "may hold only letters, digits and . _ : @ / + = -")
		}
	}
	return prefix, nil
}

// Owner says who asks, for people and logs. It proves nothing.
type Owner string

// NewOwner checks an owner label: 1 to 64 characters of valid UTF-8 without
// control or format characters, so that it cannot forge a log line.
func NewOwner(s string) (Owner, error) {
	if err := checkText("owner", s); err != nil {
		return "", err
	}
	if n := utf8.RuneCountInString(s); n < 1 || n > MaxOwnerRunes {
		return "", Invalid("owner", "must be 1 to 64 characters")
	}
	return Owner(s), nil
}

// CheckMetadata checks what a caller attaches to a session or a grant: at most
// 16 pairs and 4 KiB in all, non-empty names, valid UTF-8 without control or format
// characters.
func CheckMetadata(m map[string]string) error {
	if len(m) > MaxMetadataPairs {
		return Invalid("metadata", "must be at most 16 pairs")
	}
	size := 0
	for name, value := range m {
		if name == "" {
			return Invalid("metadata", "names must not be empty")
		}
		if err := checkText("metadata", name); err != nil {
			return err
		}
		if err := checkText("metadata", value); err != nil {
			return err
		}
		size += len(name) + len(value)
	}
	if size > MaxMetadataBytes {
		return Invalid("metadata", "must be at most 4096 bytes in all")
	}
	return nil
}
