package config

import (
	"flag"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/fencelock/fencelock/apps/program/settings"
	"github.com/fencelock/fencelock/contracts/parity/document"
)

var update = flag.Bool("update", false, "write the checked tables of docs/contracts")

func table(name string) document.Table {
	return document.Table{File: "../../../docs/contracts/C5-config-and-naming.md", Name: name, Update: *update}
}

func everyKey() []*pflag.Flag {
	var flags []*pflag.Flag
	keys(new(Config)).VisitAll(func(f *pflag.Flag) { flags = append(flags, f) })
	return flags
}

// TestKeysDocument: the document has every key, in all its forms, and each in the form that it gives for keys.
func TestKeysDocument(t *testing.T) {
	t.Parallel()
	var rows [][]string
	for _, f := range everyKey() {
		rows = append(rows, []string{
			document.Code(f.Name), document.Code("--" + f.Name + " " + f.Value.Type()), document.Code(settings.Variable(f.Name)),
			document.Code(strings.Trim(f.DefValue, "[]")), document.Prose, f.Usage,
		})
	}
	table("keys").Check(t, rows)
	for _, form := range table("forms").Rows(t) {
		for _, f := range everyKey() {
			if form[0] == "configuration key" && !regexp.MustCompile(`^`+strings.Trim(form[1], "`")+`$`).MatchString(f.Name) {
				t.Errorf("key %s is not of the form %s", f.Name, form[1])
			}
		}
	}
}

// TestRangesDocument tries the ends of each documented range, and what lies just beyond them.
func TestRangesDocument(t *testing.T) {
	t.Parallel()
	for _, row := range table("keys").Rows(t) {
		key := strings.Trim(row[0], "`")
		good, bad, err := samples(row[4])
		if err != nil {
			t.Errorf("%s: %v", key, err)
		}
		for _, value := range good {
			if refused(key, value) {
				t.Errorf("%s: %q is refused, the document says %s", key, value, row[4])
			}
		}
		for _, value := range bad {
			if !refused(key, value) {
				t.Errorf("%s: %q is taken, the document says %s", key, value, row[4])
			}
		}
	}
}

// refused reports whether the value is why nothing would start; that another key is missing beside it does not count.
func refused(key, value string) bool {
	args := []string{"--" + key + "=" + value}
	if strings.HasPrefix(key, "postgres.") {
		args = append([]string{"--lock.backend=postgres", "--postgres.url=postgres://db/locks"}, args...)
	}
	_, err := Load(args, nil)
	return err != nil && (strings.HasPrefix(err.Error(), key+":") || strings.Contains(err.Error(), "--"+key))
}

// samples turns a documented range into values that must be taken and values that must not be.
func samples(text string) (good, bad []string, err error) {
	switch {
	case strings.HasPrefix(text, "any"):
		return nil, nil, nil
	case text == "not empty":
		return nil, []string{""}, nil
	case text == "host:port":
		return []string{"127.0.0.1:1", "[::1]:1", ":1"}, []string{"", "localhost", "::1"}, nil
	case text == "addresses":
		return []string{"", "a:1", "http://a:1,http://b:2"}, []string{"a b"}, nil
	case text == "PostgreSQL URL":
		return []string{"postgres://db/locks", "postgresql://role:word@db:5432/locks?sslmode=disable"}, []string{"", "db/locks", "mysql://db/locks"}, nil
	case text == "empty, or PostgreSQL URL":
		return []string{"", "postgres://db/locks"}, []string{"db/locks", "mysql://db/locks"}, nil
	case strings.HasPrefix(text, "one of "):
		return codes(text), []string{"", "none-of-these"}, nil
	case strings.HasPrefix(text, "at least "):
		low := codes(text)[0]
		if f := keys(new(Config)).Lookup(low); f != nil {
			low = f.DefValue
		}
		return []string{low}, []string{step(low, -1)}, nil
	}
	m := regexp.MustCompile("^(`0`, or )?`(.+)` to `(.+)`$").FindStringSubmatch(text)
	if m == nil {
		return nil, nil, fmt.Errorf("range %q is none that this test can try", text)
	}
	good, bad = []string{m[2], m[3]}, []string{step(m[2], -1), step(m[3], 1)}
	if m[1] != "" {
		good = append(good, "0")
	}
	return good, bad, nil
}

// codes returns what stands in code style.
func codes(text string) []string {
	var found []string
	for _, m := range regexp.MustCompile("`([^`]*)`").FindAllStringSubmatch(text, -1) {
		found = append(found, m[1])
	}
	return found
}

// step is the next value below (-1) or above (1).
func step(value string, by int) string {
	if n, err := strconv.Atoi(value); err == nil {
		return strconv.Itoa(n + by)
	}
	if d, err := time.ParseDuration(value); err == nil {
		return (d + time.Duration(by)).String()
	}
	x, err := strconv.ParseFloat(value, 64)
	if err != nil {
		return "no value at all"
	}
	return strconv.FormatFloat(x+float64(by)*1e-6, 'f', -1, 64)
}

// TestTheServerLetsOtherVariablesPass: a server starts where the documented variables of lockctl and of tests are set.
func TestTheServerLetsOtherVariablesPass(t *testing.T) {
	t.Parallel()
	for _, row := range table("variables").Rows(t) {
		name := strings.Trim(row[0], "`")
		if _, err := Load(nil, []string{name + "=x"}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
