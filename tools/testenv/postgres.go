package testenv

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// The major versions that the environment may choose.
const (
	postgresOldest = 14
	postgresNewest = 18
)

// databaseLimit bounds making and dropping a database.
const databaseLimit = 2 * time.Minute

// PostgresServer is a running PostgreSQL.
type PostgresServer struct {
	// URL is a postgres URL of a role that may create databases, a superuser unless the environment
	// names a server, and of the database "postgres".
	URL string

	// brief: the server ends with the test, and its databases with it.
	brief bool
}

// PostgresNode is a private PostgreSQL whose life the test controls.
type PostgresNode struct {
	PostgresServer
	Node
}

//nolint:gochecknoglobals // The server is shared by the tests of one process; only a global is.
var sharedPostgres = shared[*PostgresServer]{find: findPostgres}

// Postgres returns the PostgreSQL that all tests of this process share; use a database of your own.
// It fails the test where no server can be had.
func Postgres(t T) *PostgresServer {
	t.Helper()
	return sharedPostgres.get(t)
}

// StartPostgres starts a private PostgreSQL; settings such as "fsync=off" are added to its own.
func StartPostgres(t T, settings ...string) *PostgresNode {
	t.Helper()
	s, err := postgresSettings()
	if err != nil {
		t.Fatalf("%v", err)
	}
	node := startNode(t, s, newPostgres(settings))
	return &PostgresNode{PostgresServer: PostgresServer{URL: node.host.endpoint(), brief: true}, Node: node}
}

// Database creates an empty database with a name of its own and returns its URL. It is dropped when
// the test ends, with the connections that are still open.
//
// The server's own way of copying the template is the fastest: since version 15 it goes through the log
// and takes no checkpoint (0.1 to 0.25 s on two busy cores, of which 0.06 s are CPU time, where
// STRATEGY file_copy takes 0.45 to 0.65 s).
func (s *PostgresServer) Database(t T) string {
	t.Helper()
	name := "fencelock_test_" + strings.ToLower(rand.Text())
	target, err := url.Parse(s.URL)
	if err != nil {
		t.Fatalf("read URL of PostgreSQL: %v", err)
	}
	target.Path = "/" + name
	if err := s.execute(t.Context(), "CREATE DATABASE "+name+" TEMPLATE template0"); err != nil {
		t.Fatalf("create database: %v", err)
	}
	if s.brief {
		return target.String()
	}
	t.Cleanup(func() {
		// The test's own context has ended.
		if err := s.execute(context.WithoutCancel(t.Context()), "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			t.Logf("drop database: %v", err)
		}
	})
	return target.String()
}

// execute runs one statement on a connection of its own.
func (s *PostgresServer) execute(ctx context.Context, statement string) error {
	ctx, cancel := context.WithTimeout(ctx, databaseLimit)
	defer cancel()
	return execute(ctx, s.URL, statement)
}

func execute(ctx context.Context, url, statement string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, statement); err != nil {
		return fmt.Errorf("execute %q: %w", statement, err)
	}
	return nil
}

// healthyDatabase asks the server of a database URL whether it serves.
func healthyDatabase(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return execute(ctx, url, "SELECT 1")
}

func findPostgres() (*PostgresServer, host, error) {
	s, err := postgresSettings()
	if err != nil {
		return nil, nil, err
	}
	if s.allows(wayAddress) && len(s.addresses) > 0 {
		return &PostgresServer{URL: s.addresses[0]}, nil, nil
	}
	// The server outlives the test that needs it first, so no test's context bounds it.
	h, err := launch(context.Background(), s, newPostgres(nil))
	if err != nil {
		return nil, nil, err
	}
	return &PostgresServer{URL: h.endpoint()}, h, nil
}

// postgresSettings refuses what cannot be meant.
func postgresSettings() (settings, error) {
	s := readSettings(envPostgresVersion)
	if s.version != "" {
		major, err := strconv.Atoi(s.version)
		if err != nil || major < postgresOldest || major > postgresNewest {
			return s, fmt.Errorf("%s=%s: want a major version from %d to %d",
				envPostgresVersion, s.version, postgresOldest, postgresNewest)
		}
	}
	if address := os.Getenv(envPostgres); address != "" {
		if u, err := url.Parse(address); err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" || u.Host == "" {
			return s, fmt.Errorf("%s: want a URL such as postgres://role:password@127.0.0.1:5432/postgres", envPostgres)
		}
		s.addresses = []string{address}
	}
	return s, nil
}
