package config

import (
	"flag"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/fencelock/fencelock/apps/program/settings"
	"github.com/fencelock/fencelock/contracts/parity/document"
)

var update = flag.Bool("update", false, "write the checked tables of docs/contracts")

func table(name string) document.Table {
	return document.Table{File: "../../../../docs/contracts/C5-config-and-naming.md", Name: name, Update: *update}
}

// program is one program's configuration.
type program struct {
	table string
	keys  *pflag.FlagSet
	// load loads, with what must be set besides args.
	load func(args ...string) error
}

func programs() []program {
	return []program{
		{"payment-keys", keysOfPayment(new(Payment)), func(args ...string) error {
			_, err := LoadPayment(append([]string{"--payment.url=postgres://db/pay"}, args...), nil)
			return err
		}},
		{"rail-proxy-keys", keysOfProxy(new(Proxy)), func(args ...string) error {
			_, err := LoadProxy(append([]string{"--rail.proxy.url=postgres://db/rail"}, args...), nil)
			return err
		}},
		{"rail-stub-keys", keysOfStub(new(Stub)), func(args ...string) error {
			_, err := LoadStub(args, nil)
			return err
		}},
	}
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
	for _, p := range programs() {
		var rows [][]string
		p.keys.VisitAll(func(f *pflag.Flag) {
			if !form.MatchString(f.Name) {
				t.Errorf("key %s is not of the form %s", f.Name, form)
			}
			rows = append(rows, []string{
				document.Code(f.Name), document.Code("--" + f.Name + " " + f.Value.Type()), document.Code(settings.Variable(f.Name)),
				document.Code(f.DefValue), document.Prose, f.Usage,
			})
		})
		table(p.table).Check(t, rows)
	}
}

// TestRangesDocument tries the ends of each documented range, and what lies just beyond them.
func TestRangesDocument(t *testing.T) {
	t.Parallel()
	// The names of the tables, for the list of what this test reads: "payment-keys", "rail-proxy-keys", "rail-stub-keys".
	for _, p := range programs() {
		for _, row := range table(p.table).Rows(t) {
			key := strings.Trim(row[0], "`")
			good, bad, err := samples(row[4])
			if err != nil {
				t.Errorf("%s: %v", key, err)
			}
			for _, value := range good {
				if err := p.load("--" + key + "=" + value); err != nil {
					t.Errorf("%s: %q is refused, the document says %s: %v", key, value, row[4], err)
				}
			}
			for _, value := range bad {
				if err := p.load("--" + key + "=" + value); err == nil || !strings.Contains(err.Error(), key) || strings.Contains(err.Error(), "\n") {
					t.Errorf("%s: %q gives %v, the document says %s", key, value, err, row[4])
				}
			}
		}
	}
}

// samples turns a documented range into values that must be taken and values that must not be.
func samples(text string) (good, bad []string, err error) {
	switch {
	case text == "a file, or empty":
		return []string{"", "/does/not/matter/yet"}, nil, nil
	case text == "not empty":
		return []string{"x"}, []string{""}, nil
	case text == "host:port":
		return []string{"127.0.0.1:1", "[::1]:1", ":1"}, []string{"", "localhost", "::1"}, nil
	case text == "PostgreSQL URL":
		return []string{"postgres://db/pay", "postgresql://role:word@db:5432/pay?sslmode=disable"}, []string{"", "db/pay", "mysql://db/pay"}, nil
	case text == "HTTP URL":
		return []string{"http://rail:1", "https://rail/sub"}, []string{"", "rail", "rail:1", "ftp://rail", "http://", "http://rail?x", "http://rail#x"}, nil
	case strings.HasPrefix(text, "one of "):
		return codes(text), []string{"", "none-of-these"}, nil
	}
	m := regexp.MustCompile("^`(.+)` to `(.+)`$").FindStringSubmatch(text)
	if m == nil {
		return nil, nil, fmt.Errorf("range %q is none that this test can try", text)
	}
	if low, err := time.ParseDuration(m[1]); err == nil && m[1] != "0" {
		high, err := time.ParseDuration(m[2])
		return []string{m[1], m[2]}, []string{(low - 1).String(), (high + 1).String()}, err
	}
	return []string{m[1], m[2]}, []string{"-0.000001", "1.000001", "NaN", "Inf"}, nil
}

// codes returns what stands in code style.
func codes(text string) []string {
	var found []string
	for _, m := range regexp.MustCompile("`([^`]*)`").FindAllStringSubmatch(text, -1) {
		found = append(found, m[1])
	}
	return found
}
