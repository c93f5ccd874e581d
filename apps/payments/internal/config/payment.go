package config

import (
	"io"
	"log/slog"

	"github.com/spf13/pflag"

	"github.com/fencelock/fencelock/apps/program/database"
	"github.com/fencelock/fencelock/apps/program/logging"
	"github.com/fencelock/fencelock/apps/program/settings"
)

// Payment is all that can be set about the payment resource.
type Payment struct {
	// Addr is where RPC listens, and AdminAddr metrics and probes; host:port.
	Addr, AdminAddr string
	// URL leads to the database of accounts, payouts and the ledger. It may hold a password.
	URL string
	// Fencing says that stale tokens are refused.
	Fencing bool
	// PublicKeyFile has the keys of which one must have signed each token; empty: every caller is believed.
	PublicKeyFile string
	// Log is how severe and in what form events are logged.
	Log logging.Config
}

// LoadPayment reads the configuration; see [settings.Load].
func LoadPayment(args, env []string) (Payment, error) {
	return load(keysOfPayment, Payment.check, args, env)
}

// UsageOfPayment is the text of --help.
func UsageOfPayment() string { return keysOfPayment(new(Payment)).FlagUsages() }

// Print writes c in a form that can be read back as a file, with passwords replaced.
func (c Payment) Print(w io.Writer) error {
	return settings.Print(w, settings.Bound(&c, keysOfPayment), shown)
}

// Logger logs to w, as configured.
func (c Payment) Logger(w io.Writer) *slog.Logger { return c.Log.Logger(w) }

// Place names the database, without secrets.
func (c Payment) Place() string { return "PostgreSQL at " + database.Place(c.URL) }

// OpenToNetwork lists the keys of addresses that other machines can reach.
func (c Payment) OpenToNetwork() []string {
	return open(door{"payment.addr", c.Addr}, door{"payment.admin-addr", c.AdminAddr})
}

func (c Payment) check() error {
	return first(
		checkDoors(door{"payment.addr", c.Addr}, door{"payment.admin-addr", c.AdminAddr}),
		checkDatabase("payment.url", c.URL),
		c.Log.Check(),
	)
}

// keysOfPayment declares every key with its default and its line of help, bound to c.
func keysOfPayment(c *Payment) *pflag.FlagSet {
	fs := flags("payment-resource")
	fs.StringVar(&c.Addr, "payment.addr", "127.0.0.1:8480", "address of RPC")
	fs.StringVar(&c.AdminAddr, "payment.admin-addr", "127.0.0.1:8481", adminUsage)
	fs.StringVar(&c.URL, "payment.url", "", "database of accounts, payouts and the ledger; "+urlUsage)
	fs.BoolVar(&c.Fencing, "payment.fencing.enabled", true,
		"refuse stale tokens; false, to show the harm: compare neither tokens nor states")
	fs.StringVar(&c.PublicKeyFile, keyFile, "", keyFileUsage)
	c.Log.Declare(fs)
	return fs
}
