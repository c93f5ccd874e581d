package boundaries

import (
	"fmt"
	"slices"
	"strings"
)

// allowance is what a module may import besides the standard library and itself. Every entry also
// covers what lies below it.
type allowance struct {
	// module is the module's name.
	module string
	// siblings may be imported and reached through others.
	siblings []string
	// external packages may be imported.
	external []string
	// tests may import these too; goleak and rapid are open to all.
	tests []string
}

const (
	connect  = "connectrpc.com/connect"
	protobuf = "google.golang.org/protobuf"
	client   = "go.etcd.io/etcd/client/v3"
	api      = "go.etcd.io/etcd/api/v3"
	grpc     = "google.golang.org/grpc"
	zap      = "go.uber.org/zap"
	domain   = "core/lock"
)

// allowances is the table of allowed imports.
func allowances() []allowance { return slices.Concat(libraries(), programs(), tooling()) }

// libraries are the modules that others import.
func libraries() []allowance {
	return []allowance{
		{module: "core"},
		{
			module:   "contracts/parity",
			siblings: []string{"core"},
			external: []string{"github.com/anishathalye/porcupine"},
		},
		{module: "contracts/api", external: []string{connect, protobuf}},
		{
			module:   "adapters/etcd",
			siblings: []string{domain, "core/fence", "core/port", "core/clock", "core/feed", "core/watermark"},
			external: []string{client, api, grpc, zap, "github.com/coreos/go-semver"},
			tests:    []string{"core", "contracts/parity", "tools/testenv"},
		},
		{
			module:   "adapters/postgres",
			siblings: []string{domain, "core/fence", "core/port", "core/feed", "core/watermark"},
			external: []string{"github.com/jackc/pgx/v5", "github.com/pressly/goose/v3"},
			tests:    []string{"core", "contracts/parity", "tools/testenv"},
		},
		{
			module:   "adapters/rpc",
			siblings: []string{"core", "contracts/api"},
			external: []string{connect, protobuf, "connectrpc.com/grpchealth", "connectrpc.com/grpcreflect"},
			tests:    []string{"contracts/parity", grpc, "golang.org/x/net"},
		},
		{
			module: "adapters/client",
			// Not the service: a client must work with a server of another version.
			siblings: []string{domain, "core/port", "core/clock", "contracts/api"},
			external: []string{connect, protobuf, "golang.org/x/net"},
			tests:    []string{"core", "contracts/parity", "adapters/rpc"},
		},
	}
}

// programs are the modules of what users run.
func programs() []allowance {
	return []allowance{
		{
			module:   "apps/lockctl",
			siblings: []string{domain, "core/port", "core/clock", "contracts/api", "adapters/client"},
			external: []string{connect, protobuf, "github.com/spf13", "golang.org/x/sys"},
			tests:    []string{"core", "contracts/parity", "adapters/rpc"},
		},
		{
			module:   "apps/program",
			siblings: []string{domain},
			external: []string{
				"go.uber.org/fx", "go.uber.org/dig", "github.com/spf13/pflag", "go.yaml.in/yaml",
				"go.opentelemetry.io", "github.com/prometheus", "github.com/jackc/pgx/v5",
			},
		},
		{
			module:   "apps/lockserver",
			siblings: []string{"core", "contracts/api", "adapters/etcd", "adapters/postgres", "adapters/rpc", "apps/program"},
			external: []string{
				connect, protobuf, "connectrpc.com", client, api, grpc, zap, "go.etcd.io/etcd/server/v3",
				"go.uber.org/fx", "github.com/spf13", "go.opentelemetry.io", "github.com/prometheus",
			},
			tests: []string{"adapters/client", "tools/testenv", "contracts/parity", "golang.org/x/net", "github.com/jackc/pgx/v5"},
		},
		{
			module:   "apps/payments",
			siblings: []string{"core", "contracts/api", "adapters/postgres/cancel", "adapters/postgres/guard", "adapters/rpc", "apps/program"},
			external: []string{
				connect, protobuf, "github.com/jackc/pgx/v5", "github.com/pressly/goose/v3", "go.uber.org/fx", "github.com/spf13/pflag",
				"go.opentelemetry.io", "github.com/prometheus",
			},
			tests: []string{"contracts/parity", "tools/testenv"},
		},
		{
			module: "apps/payout-executor",
			// The SDK, and what the SDK needs: which store is behind the locks is not its affair.
			siblings: []string{domain, "core/port", "core/clock", "contracts/api", "adapters/client", "apps/program"},
			external: []string{
				connect, protobuf, "go.uber.org/fx", "github.com/spf13/pflag", "github.com/prometheus/client_golang",
				"go.opentelemetry.io/otel/trace", "go.opentelemetry.io/otel/attribute", "go.opentelemetry.io/otel/codes",
			},
			tests: []string{"core", "contracts/parity", "adapters/rpc", "go.opentelemetry.io/otel/sdk", "github.com/prometheus/client_model"},
		},
	}
}

// tooling is for whoever works on the rest.
func tooling() []allowance {
	return []allowance{
		{
			module:   "tools/testenv",
			external: []string{"github.com/testcontainers/testcontainers-go", "github.com/moby/moby", "github.com/jackc/pgx/v5"},
		},
		{module: "tools/testenv/etcd", external: []string{"go.etcd.io/etcd/server/v3"}},
		{
			module:   "tools/drills",
			siblings: []string{"core", "contracts/api", "adapters/client", "tools/testenv"},
			external: []string{connect, protobuf, grpc, client},
			tests:    []string{"github.com/jackc/pgx/v5"},
		},
		{
			module:   "tools/bench",
			siblings: []string{"core", "contracts/api", "adapters/client", "tools/testenv", "tools/drills"},
			external: []string{connect, protobuf, client},
		},
		{module: "tools/boundaries"},
	}
}

// foreignImports finds the imports of a module's packages that the table does not allow, and the
// siblings that it must not reach.
func foreignImports(a allowance, packages []listed) []string {
	var found []string
	use := slices.Concat(siblingPaths(append([]string{a.module}, a.siblings...)), a.external)
	test := slices.Concat(use, siblingPaths(a.tests), a.tests,
		[]string{"go.uber.org/goleak", "pgregory.net/rapid"})
	for _, p := range packages {
		if p.Standard {
			continue
		}
		if p.DepOnly {
			if strings.HasPrefix(p.ImportPath, prefix) && !covers(use, p.ImportPath) {
				found = append(found, fmt.Sprintf("%s reaches %s", a.module, p.ImportPath))
			}
			continue
		}
		for _, path := range p.Imports {
			if external(path) && !covers(use, path) {
				found = append(found, fmt.Sprintf("%s imports %s", p.ImportPath, path))
			}
		}
		for _, path := range slices.Concat(p.TestImports, p.XTestImports) {
			if external(path) && !covers(test, path) {
				found = append(found, fmt.Sprintf("tests of %s import %s", p.ImportPath, path))
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// external reports whether a path is not of the standard library.
func external(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return strings.Contains(first, ".")
}

func covers(allowed []string, path string) bool {
	return slices.ContainsFunc(allowed, func(a string) bool {
		return path == a || strings.HasPrefix(path, a+"/")
	})
}

func siblingPaths(names []string) []string {
	paths := make([]string, 0, len(names))
	for _, name := range names {
		paths = append(paths, prefix+name)
	}
	return paths
}
