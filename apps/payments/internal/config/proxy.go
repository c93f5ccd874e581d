package config

import (
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"time"

	"github.com/spf13/pflag"

	"github.com/fencelock/fencelock/apps/program/database"
	"github.com/fencelock/fencelock/apps/program/logging"
	"github.com/fencelock/fencelock/apps/program/settings"
)

// Proxy is all that can be set about the proxy before the rail.
type Proxy struct {
	// Addr is where RPC listens, and AdminAddr metrics and probes; host:port.
	Addr, AdminAddr string
	// URL leads to the database of marks and submissions. It may hold a password.
	URL string
	// Rail is the URL of the rail.
	Rail string
	// Timeout bounds one request to the rail, 10ms to 10m.
	Timeout time.Duration
	// Fencing says that stale tokens and second submissions are refused.
	Fencing bool
	// PublicKeyFile has the keys of which one must have signed each token; empty: every caller is believed.
	PublicKeyFile string
	// Log is how severe and in what form events are logged.
	Log logging.Config
}

// LoadProxy reads the configuration; see [settings.Load].
func LoadProxy(args, env []string) (Proxy, error) { return load(keysOfProxy, Proxy.check, args, env) }

// UsageOfProxy is the text of --help.
func UsageOfProxy() string { return keysOfProxy(new(Proxy)).FlagUsages() }

// Print writes c in a form that can be read back as a file, with passwords replaced.
func (c Proxy) Print(w io.Writer) error {
	return settings.Print(w, settings.Bound(&c, keysOfProxy), shown)
}

// Logger logs to w, as configured.
func (c Proxy) Logger(w io.Writer) *slog.Logger { return c.Log.Logger(w) }

// Place names the database and the rail, without secrets.
func (c Proxy) Place() string {
	return "PostgreSQL at " + database.Place(c.URL) + ", rail at " + settings.ShownURLs(c.Rail)
}

// OpenToNetwork lists the keys of addresses that other machines can reach.
func (c Proxy) OpenToNetwork() []string {
	return open(door{"rail.proxy.addr", c.Addr}, door{"rail.proxy.admin-addr", c.AdminAddr})
}

func (c Proxy) check() error {
	return first(
		checkDoors(door{"rail.proxy.addr", c.Addr}, door{"rail.proxy.admin-addr", c.AdminAddr}),
		checkDatabase("rail.proxy.url", c.URL),
		checkRail(c.Rail),
		between("rail.proxy.timeout", c.Timeout, 10*time.Millisecond, 10*time.Minute),
		c.Log.Check(),
	)
}

func checkRail(address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return fmt.Errorf("rail.proxy.rail: must be a URL such as http://127.0.0.1:8484")
	}
	return nil
}

// keysOfProxy declares every key with its default and its line of help, bound to c.
func keysOfProxy(c *Proxy) *pflag.FlagSet {
	fs := flags("rail-proxy")
	fs.StringVar(&c.Addr, "rail.proxy.addr", "127.0.0.1:8482", "address of RPC")
	fs.StringVar(&c.AdminAddr, "rail.proxy.admin-addr", "127.0.0.1:8483", adminUsage)
	fs.StringVar(&c.URL, "rail.proxy.url", "", "database of marks and submissions; "+urlUsage)
	fs.StringVar(&c.Rail, "rail.proxy.rail", "http://127.0.0.1:8484", "URL of the rail")
	fs.DurationVar(&c.Timeout, "rail.proxy.timeout", 10*time.Second,
		"longest wait for an answer of the rail, 10ms to 10m; after it nobody knows whether the rail has executed what was sent")
	fs.BoolVar(&c.Fencing, "rail.proxy.fencing.enabled", true,
		"refuse stale tokens and second submissions; false, to show the harm: forward whatever comes")
	fs.StringVar(&c.PublicKeyFile, keyFile, "", keyFileUsage)
	c.Log.Declare(fs)
	return fs
}
