package config

import (
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/pflag"

	"github.com/fencelock/fencelock/apps/payments/internal/bank"
	"github.com/fencelock/fencelock/apps/program/logging"
	"github.com/fencelock/fencelock/apps/program/settings"
)

// Stub is all that can be set about the rail for tests.
type Stub struct {
	// Addr is where it serves, and AdminAddr metrics and probes; host:port.
	Addr, AdminAddr string
	// LogFile is where it keeps what it has received.
	LogFile string
	// Latency passes before each transfer is executed, up to 10m.
	Latency time.Duration
	// Decline and LoseReply are the shares of transfers that are declined, and of those that are executed and not answered.
	Decline, LoseReply float64
	// Log is how severe and in what form events are logged.
	Log logging.Config
}

// LoadStub reads the configuration; see [settings.Load].
func LoadStub(args, env []string) (Stub, error) { return load(keysOfStub, Stub.check, args, env) }

// UsageOfStub is the text of --help.
func UsageOfStub() string { return keysOfStub(new(Stub)).FlagUsages() }

// Print writes c in a form that can be read back as a file.
func (c Stub) Print(w io.Writer) error { return settings.Print(w, settings.Bound(&c, keysOfStub), nil) }

// Logger logs to w, as configured.
func (c Stub) Logger(w io.Writer) *slog.Logger { return c.Log.Logger(w) }

// Faults are what goes wrong from the start.
func (c Stub) Faults() bank.Faults {
	return bank.Faults{Latency: c.Latency, Decline: c.Decline, LoseReply: c.LoseReply}
}

// OpenToNetwork lists the keys of addresses that other machines can reach.
func (c Stub) OpenToNetwork() []string {
	return open(door{"rail.stub.addr", c.Addr}, door{"rail.stub.admin-addr", c.AdminAddr})
}

func (c Stub) check() error {
	if c.LogFile == "" {
		return fmt.Errorf("rail.stub.log-file: must not be empty")
	}
	return first(
		checkDoors(door{"rail.stub.addr", c.Addr}, door{"rail.stub.admin-addr", c.AdminAddr}),
		between("rail.stub.latency", c.Latency, 0, bank.MaxLatency),
		share("rail.stub.decline", c.Decline),
		share("rail.stub.lose-reply", c.LoseReply),
		c.Log.Check(),
	)
}

// keysOfStub declares every key with its default and its line of help, bound to c.
func keysOfStub(c *Stub) *pflag.FlagSet {
	fs := flags("rail-stub")
	fs.StringVar(&c.Addr, "rail.stub.addr", "127.0.0.1:8484", "address of the rail")
	fs.StringVar(&c.AdminAddr, "rail.stub.admin-addr", "127.0.0.1:8485", adminUsage)
	fs.StringVar(&c.LogFile, "rail.stub.log-file", "./fencelock-data/transfers.log", "file of what was received; it is only ever appended to")
	fs.DurationVar(&c.Latency, "rail.stub.latency", 0, "time that passes before a transfer is executed, up to 10m")
	fs.Float64Var(&c.Decline, "rail.stub.decline", 0, "share of transfers that are declined, 0 to 1")
	fs.Float64Var(&c.LoseReply, "rail.stub.lose-reply", 0, "share of the others that are executed and not answered, 0 to 1")
	c.Log.Declare(fs)
	return fs
}
