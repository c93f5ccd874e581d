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

// TestKeysDocument: the document has every key, in all its forms, and each in the form that it gives for keys.
func TestKeysDocument(t *testing.T) {
	t.Parallel()
	var form *regexp.Regexp
	for _, row := range table("forms").Rows(t) {
		if row[0] == "configuration key" {
			form = regexp.MustCompile(`^` + strings.Trim(row[1], "`") + `$`)
		}
	}
	var rows [][]string
	keys(new(Config)).VisitAll(func(f *pflag.Flag) {
		if !form.MatchString(f.Name) {
			t.Errorf("key %s is not of the form %s", f.Name, form)
		}
		rows = append(rows, []string{
			document.Code(f.Name), document.Code("--" + f.Name + " " + f.Value.Type()), document.Code(settings.Variable(f.Name)),
			document.Code(strings.Trim(f.DefValue, "[]")), document.Prose, f.Usage,
		})
	})
	table("payout-keys").Check(t, rows)
}

// TestRangesDocument tries the ends of each documented range, and what lies just beyond them.
func TestRangesDocument(t *testing.T) {
	t.Parallel()
	for _, row := range table("payout-keys").Rows(t) {
		key := strings.Trim(row[0], "`")
		good, bad, err := samples(row[4])
		if err != nil {
			t.Errorf("%s: %v", key, err)
		}
		for _, value := range good {
			if _, err := Load([]string{"--" + key + "=" + value}, nil); err != nil {
				t.Errorf("%s: %q is refused, the document says %s: %v", key, value, row[4], err)
			}
		}
		for _, value := range bad {
			_, err := Load([]string{"--" + key + "=" + value}, nil)
			if err == nil || !strings.Contains(err.Error(), key) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: %q gives %v, the document says %s", key, value, err, row[4])
			}
		}
	}
}

// samples turns a documented range into values that must be taken and values that must not be.
func samples(text string) (good, bad []string, err error) {
	urls := []string{"http://pay:1", "https://pay/sub"}
	noURLs := []string{"pay", "pay:1", "ftp://pay", "http://", "http://pay?x", "http://pay#x"}
	switch {
	case text == "addresses":
		return []string{"a:1", "http://a:1,https://b:2"}, []string{"", "a b"}, nil
	case text == "HTTP URL":
		return urls, append(noURLs, ""), nil
	case text == "HTTP URL, or empty":
		return append(urls, ""), noURLs, nil
	case text == "host:port":
		return []string{"127.0.0.1:1", "[::1]:1", ":1"}, []string{"", "localhost", "::1"}, nil
	case text == "empty, or as [an owner](#ct5-names)":
		return []string{"", strings.Repeat("ä", 64)}, []string{strings.Repeat("x", 65), "a\x00"}, nil
	case strings.HasPrefix(text, "one of "):
		for _, m := range regexp.MustCompile("`([^`]*)`").FindAllStringSubmatch(text, -1) {
			good = append(good, m[1])
		}
		return good, []string{"", "none-of-these"}, nil
	}
	m := regexp.MustCompile("^`(.+)` to `(.+)`$").FindStringSubmatch(text)
	if m == nil {
		return nil, nil, fmt.Errorf("range %q is none that this test can try", text)
	}
	return m[1:], []string{step(m[1], -1), step(m[2], 1)}, nil
}

// step is the next value below (-1) or above (1).
func step(value string, by int) string {
	if n, err := strconv.Atoi(value); err == nil {
		return strconv.Itoa(n + by)
	}
	d, err := time.ParseDuration(value)
	if err != nil {
		return "no value at all"
	}
	return (d + time.Duration(by)).String()
}

func TestWhoAsksIsTheHostOrWhatIsSet(t *testing.T) {
	t.Parallel()
	if who := (Config{Owner: "me"}).Who(); who != "me" {
		t.Errorf("it is %q", who)
	}
	if who := (Config{}).Who(); !regexp.MustCompile(`^.+:\d+$`).MatchString(who) {
		t.Errorf("it is %q", who)
	}
}
