package testenv

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

const superuser = "postgres"

// postgres is the program.
type postgres struct {
	password string
	settings []string
}

func newPostgres(settings []string) *postgres {
	return &postgres{password: rand.Text(), settings: settings}
}

func (*postgres) name() string { return "PostgreSQL" }

func (*postgres) advice() string {
	return "set " + envPostgres + " to the URL of a role that may create databases, or start Docker " +
		"(and run `make images`), or install the server's programs (Debian: apt-get install postgresql; " +
		"Fedora: dnf install postgresql-server; macOS: brew install postgresql@" + PostgresVersion + ")"
}

func (p *postgres) endpoint(address string) string {
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword(superuser, p.password), Host: address,
		Path: "/postgres", RawQuery: "sslmode=disable",
	}
	return u.String()
}

func (*postgres) healthy(ctx context.Context, endpoint string) error {
	return healthyDatabase(ctx, endpoint)
}

func (*postgres) images(version string) (built string, official []string) {
	if version == "" {
		version = PostgresVersion
	}
	return "fencelock/postgres-test:" + version, []string{"postgres:" + version}
}

// contained runs the server in any image that has it in Debian's places.
func (p *postgres) contained(string) contained {
	const data = "/var/lib/postgresql"
	return contained{
		entrypoint: []string{"sh", "-ec", `
bin=$(ls -d /usr/lib/postgresql/*/bin)
if ! [ -e "$PGDATA/postgresql.conf" ]; then
	umask 077
	printf %s "$TESTENV_PASSWORD" >/tmp/password
	"$bin/initdb" ` + strings.Join(initArgs("/tmp/password"), " ") + ` >/dev/null
	echo host all,replication all all scram-sha-256 >>"$PGDATA/pg_hba.conf"
fi
exec "$bin/postgres" "$@"`, "postgres"},
		args: p.args("*", "5432", "/tmp"),
		env:  map[string]string{"PGDATA": data + "/testenv", "TESTENV_PASSWORD": p.password, "LC_ALL": "C"},
		user: "postgres",
		port: "5432/tcp",
		data: data,
		stop: "SIGINT",
	}
}

// local finds the programs and makes an empty cluster in dir.
func (p *postgres) local(ctx context.Context, version, dir, address string) (local, error) {
	bin, err := findPostgresPrograms(ctx, version, postgresFolders())
	if err != nil {
		return local{}, err
	}
	owner, err := unprivileged(dir)
	if err != nil {
		return local{}, err
	}
	data, password := filepath.Join(dir, "data"), filepath.Join(dir, "password")
	if err := giveFile(password, p.password, owner); err != nil {
		return local{}, err
	}
	init := exec.CommandContext(ctx, filepath.Join(bin, "initdb"), append(initArgs(password), "--pgdata="+data)...)
	init.Dir = dir
	init.Env = append(os.Environ(), "LC_ALL=C")
	init.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: owner}
	if out, err := init.CombinedOutput(); err != nil {
		return local{}, fmt.Errorf("make cluster: %w\n%s", err, out)
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return local{}, fmt.Errorf("read port: %w", err)
	}
	return local{
		path:     filepath.Join(bin, "postgres"),
		args:     append([]string{"-D", data}, p.args(host, port, "")...),
		env:      []string{"LC_ALL=C"},
		stop:     syscall.SIGINT,
		user:     owner,
		stranger: true,
	}, nil
}

// initArgs make a cluster quickly: what a crash of the machine would lose then is an empty one.
func initArgs(passwordFile string) []string {
	return []string{
		"--username=" + superuser, "--auth=scram-sha-256", "--pwfile=" + passwordFile,
		"--encoding=UTF8", "--no-locale", "--no-sync",
	}
}

// args are the server's settings. They make it small and leave durability as it is by default: fsync
// and synchronous_commit on.
func (p *postgres) args(host, port, sockets string) []string {
	all := slices.Concat([]string{
		"listen_addresses=" + host,
		"port=" + port,
		"unix_socket_directories=" + sockets,
		"max_connections=400",
		"shared_buffers=64MB",
		// Files in the cluster's folder, which go with it.
		"dynamic_shared_memory_type=mmap",
	}, p.settings)
	args := make([]string, 0, 2*len(all))
	for _, setting := range all {
		args = append(args, "-c", setting)
	}
	return args
}

// findPostgresPrograms returns which of the folders has initdb and postgres of the major version, or,
// if that is empty, of the newest.
func findPostgresPrograms(ctx context.Context, version string, folders []string) (string, error) {
	newest, found := 0, ""
	var seen []string
	for _, dir := range folders {
		major, err := postgresMajor(ctx, dir)
		if err != nil {
			continue
		}
		seen = append(seen, fmt.Sprintf("%d in %s", major, dir))
		wanted := version == strconv.Itoa(major) || version == "" && major >= postgresOldest
		if wanted && major > newest {
			newest, found = major, dir
		}
	}
	if found == "" {
		version = cmp.Or(version, fmt.Sprintf("%d or newer", postgresOldest))
		have := cmp.Or(strings.Join(seen, ", "), "none")
		return "", fmt.Errorf("no initdb and postgres of version %s on PATH or in the usual places; there is %s", version, have)
	}
	return found, nil
}

// postgresFolders are the places where packages put the programs.
func postgresFolders() []string {
	folders := filepath.SplitList(os.Getenv("PATH"))
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin",          // Debian
		"/usr/pgsql-*/bin",                   // PostgreSQL's own RPMs
		"/usr/libexec/postgresql*",           // Alpine
		"/opt/homebrew/opt/postgresql@*/bin", // Homebrew on Apple silicon
		"/usr/local/opt/postgresql@*/bin",    // Homebrew on Intel
		"/home/linuxbrew/.linuxbrew/opt/postgresql@*/bin",
	} {
		found, _ := filepath.Glob(pattern) // the patterns are well-formed
		folders = append(folders, found...)
	}
	return folders
}

// postgresMajor asks the programs of a folder for their major version.
func postgresMajor(ctx context.Context, dir string) (int, error) {
	if _, err := os.Stat(filepath.Join(dir, "initdb")); err != nil {
		return 0, fmt.Errorf("find initdb: %w", err)
	}
	// Such as "postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)".
	out, err := exec.CommandContext(ctx, filepath.Join(dir, "postgres"), "--version").Output()
	if err != nil {
		return 0, fmt.Errorf("ask for version: %w", err)
	}
	_, text, _ := strings.Cut(string(out), "(PostgreSQL) ")
	digits := strings.IndexFunc(text, func(r rune) bool { return r < '0' || r > '9' })
	major, err := strconv.Atoi(text[:max(digits, 0)])
	if err != nil {
		return 0, fmt.Errorf("read version %q: %w", out, err)
	}
	return major, nil
}

// unprivileged returns whose process a server that refuses to run as root is to be, and gives that
// user the folder. It is nil unless this process is root's.
func unprivileged(dir string) (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil //nolint:nilnil // No credential is what a process of our own has.
	}
	owner, err := user.Lookup(superuser)
	if err != nil {
		if owner, err = user.Lookup("nobody"); err != nil {
			return nil, fmt.Errorf("find a user without privileges: %w", err)
		}
	}
	uid, err := strconv.ParseUint(owner.Uid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("read id of user %s: %w", owner.Username, err)
	}
	gid, err := strconv.ParseUint(owner.Gid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("read group of user %s: %w", owner.Username, err)
	}
	if err := os.Chown(dir, int(uid), int(gid)); err != nil {
		return nil, fmt.Errorf("give folder to user %s: %w", owner.Username, err)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}

// giveFile writes a file that only its owner can read.
func giveFile(path, text string, owner *syscall.Credential) error {
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return fmt.Errorf("write file: %w", err)
	}
	if owner == nil {
		return nil
	}
	if err := os.Chown(path, int(owner.Uid), int(owner.Gid)); err != nil {
		return fmt.Errorf("give file away: %w", err)
	}
	return nil
}
