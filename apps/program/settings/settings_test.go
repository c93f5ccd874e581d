package settings_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/fencelock/fencelock/apps/program/settings"
)

// payments is the configuration of a program.
type payments struct {
	URL     string
	Servers []string
	Fencing bool
	Timeout time.Duration
	Count   int
	Share   float64
}

func keys(c *payments) *pflag.FlagSet {
	fs := pflag.NewFlagSet("payments", pflag.ContinueOnError)
	fs.StringVar(&c.URL, "payment.url", "", "database")
	fs.StringSliceVar(&c.Servers, "rail.proxy.servers", []string{"a:1"}, "servers")
	fs.BoolVar(&c.Fencing, "payment.fencing.enabled", true, "fencing")
	fs.DurationVar(&c.Timeout, "rail.proxy.timeout", time.Second, "timeout")
	fs.IntVar(&c.Count, "payment.count", 1, "count")
	fs.Float64Var(&c.Share, "payment.share", 0.5, "share")
	return fs
}

func load(args, env []string) (payments, error) {
	var c payments
	return c, settings.Load(keys(&c), args, env, nil)
}

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "settings.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return "--config=" + path
}

func TestSourcesInRisingOrder(t *testing.T) {
	t.Parallel()
	var c payments
	fs := keys(&c)
	args := []string{file(t, "payment:\n  url: file\n  count: 2\nrail.proxy:\n  servers: [b:2, c:3]\n  timeout: 2s\n"), "--payment.url=flag"}
	env := []string{"FENCELOCK_PAYMENT_URL=variable", "FENCELOCK_PAYMENT_COUNT=3", "FENCELOCK_PAYMENT_FENCING_ENABLED=false"}
	if err := settings.Load(fs, args, env, nil); err != nil {
		t.Fatal(err)
	}
	if c.URL != "flag" || c.Count != 3 || strings.Join(c.Servers, "|") != "b:2|c:3" || c.Timeout != 2*time.Second || c.Fencing || c.Share != 0.5 {
		t.Errorf("read %+v", c)
	}
	if fs.Lookup("config") != nil {
		t.Error("the flag that names the file became a key")
	}
}

func TestCheckJudgesWhatWasRead(t *testing.T) {
	t.Parallel()
	var c payments
	err := settings.Load(keys(&c), []string{"--payment.count=7"}, nil, func() error {
		if c.Count == 7 {
			return errors.New("payment.count: seven\nis postgres://app:hunter2@db too many")
		}
		return nil
	})
	if err == nil || err.Error() != "payment.count: seven is postgres://xxxxx@db too many" {
		t.Errorf("error %v", err)
	}
}

// TestWhoseVariables: what is misspelt is an error of the program that it was meant for, or of all; what is another's passes.
func TestWhoseVariables(t *testing.T) {
	t.Parallel()
	for name, pass := range map[string]bool{
		"FENCELOCK_LOCK_SESSION_TTL": true, "FENCELOCK_POSTGRES_URL": true, "FENCELOCK_RAIL_STUB_LOG_FILE": true, "FENCELOCK_PAYOUT_OWNER": true,
		"FENCELOCK_SERVER": true, "FENCELOCK_TOKEN": true, "FENCELOCK_SIGNED_TOKEN": true, "FENCELOCK_TEST_ETCD": true, "PATH": true, "FENCELOCKS": true,
		"FENCELOCK_PAYMENT_URLL": false, "FENCELOCK_RAIL_PROXY_TIMEOUTS": false, "FENCELOCK_PAYMNT_URL": false, "FENCELOCK_PAYMENTS_URL": false,
		"FENCELOCK_RAIL_URL": false, "FENCELOCK_TOKENS": false, "FENCELOCK_TESTS": false, "FENCELOCK_": false, "FENCELOCK_LOCK": false,
	} {
		if _, err := load(nil, []string{name + "=x"}); (err == nil) != pass || err != nil && !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestKeysOfNoSectionAreRefused(t *testing.T) {
	t.Parallel()
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	fs.String("kettle.temperature", "", "")
	if err := settings.Load(fs, nil, nil, nil); err == nil || !strings.Contains(err.Error(), "kettle.temperature") {
		t.Errorf("error %v", err)
	}
}

func TestValuesThatCannotBeAreExplainedInPlainWords(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]string{
		"payment.fencing.enabled": "true or false", "payment.count": "a whole number", "payment.share": "a number",
		"rail.proxy.timeout": "a duration with its unit, such as 15s or 10m",
	} {
		for source, err := range map[string]error{
			"flag --" + key:                      second(load([]string{"--" + key + "=soon"}, nil)),
			"variable " + settings.Variable(key): second(load(nil, []string{settings.Variable(key) + "=soon"})),
			"settings.yaml":                      second(load([]string{file(t, key+": soon")}, nil)),
		} {
			text := `: ` + key + `: cannot use "soon", it must be ` + want
			if err == nil || !strings.Contains(err.Error(), source+text) {
				t.Errorf("error %v, want %s%s", err, source, text)
			}
		}
	}
}

func second(_ payments, err error) error { return err }

func TestAnArgumentThatIsNoFlagIsTold(t *testing.T) {
	t.Parallel()
	_, err := load([]string{"--payment.count=2", "config"}, nil)
	if extra, ok := errors.AsType[*settings.ExtraArgumentError](err); !ok || extra.Argument != "config" {
		t.Errorf("error %v", err)
	}
	if _, err = load([]string{"postgres://app:hunter2@db"}, nil); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("error %v", err)
	}
	if _, err = load([]string{"--help"}, nil); !errors.Is(err, settings.ErrHelp) {
		t.Errorf("error %v", err)
	}
}

func TestWhatIsPrintedReadsBack(t *testing.T) {
	t.Parallel()
	want := payments{URL: `a "quoted": one`, Servers: []string{"x:1", "y:2"}, Timeout: time.Minute, Count: -1, Share: 0.25}
	show := func(_, value string) string { return strings.TrimPrefix(value, "secret ") }
	var out bytes.Buffer
	hidden := want
	hidden.URL = "secret " + want.URL
	if err := settings.Print(&out, settings.Bound(&hidden, keys), show); err != nil {
		t.Fatal(err)
	}
	got, err := load([]string{file(t, out.String())}, nil)
	if err != nil || got.URL != want.URL || strings.Join(got.Servers, "|") != "x:1|y:2" || got.Timeout != want.Timeout || got.Count != -1 || got.Share != 0.25 || got.Fencing {
		t.Errorf("read %+v from %s: %v", got, out.String(), err)
	}
}

func TestPasswordsOfAddressesAreHidden(t *testing.T) {
	t.Parallel()
	if got := settings.ShownURLs("http://root:hunter2@a:1,b:2,https://c"); got != "http://root:xxxxx@a:1,b:2,https://c" {
		t.Errorf("shown %s", got)
	}
}
