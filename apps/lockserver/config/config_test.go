package config_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/apps/lockserver/config"
	"github.com/fencelock/fencelock/apps/program/logging"
	"github.com/fencelock/fencelock/apps/program/settings"
)

func load(t *testing.T, file string, env []string, args ...string) (config.Config, error) {
	t.Helper()
	if file != "" {
		path := filepath.Join(t.TempDir(), "lockserver.yaml")
		if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append([]string{"--config", path}, args...)
	}
	return config.Load(args, env)
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	got, err := load(t, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	want := config.Config{
		Backend: "etcd", SessionTTL: 15 * time.Second, SafetyMargin: 0.30, HandoffLimit: 32, MaxWait: time.Hour,
		WaitersPerKey: 1000, WaitersTotal: 10000, EtcdPrefix: "fencelock/", EtcdDataDir: "./fencelock-data", PostgresStateDir: "./fencelock-data",
		ServerAddr: "127.0.0.1:8470", AdminAddr: "127.0.0.1:8471", DrainTimeout: 15 * time.Second,
		Log: logging.Config{Level: "info", Format: "json"},
	}
	if a, b := printed(t, got), printed(t, want); a != b {
		t.Errorf("defaults:\n%s\nwant:\n%s", a, b)
	}
	if !got.Embedded() || len(got.OpenToNetwork()) != 0 {
		t.Errorf("defaults must embed etcd and stay on this machine: %v, %v", got.Embedded(), got.OpenToNetwork())
	}
}

func printed(t *testing.T, c config.Config) string {
	t.Helper()
	var b bytes.Buffer
	if err := c.Print(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func onPostgres(args ...string) []string {
	return append([]string{"--lock.backend=postgres", "--postgres.url=postgres://db/locks"}, args...)
}

func TestSourcesInRisingOrder(t *testing.T) {
	t.Parallel()
	file := "lock:\n  session.ttl: 20s\n  handoff:\n    limit: 5\nserver.addr: 127.0.0.1:1\netcd.endpoints: [a:1, b:2]\n"
	env := []string{"FENCELOCK_LOCK_SESSION_TTL=30s", "FENCELOCK_LOCK_CLIENT_SAFETY_MARGIN=0.5", "PATH=/bin", "FENCELOCK_SERVER=http://x", "FENCELOCK_TOKEN=7"}
	got, err := load(t, file, env, "--lock.session.ttl=40s", "--etcd.unsafe-versions")
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case got.SessionTTL != 40*time.Second:
		t.Errorf("a flag must win: %v", got.SessionTTL)
	case got.SafetyMargin != 0.5:
		t.Errorf("a variable must count: %v", got.SafetyMargin)
	case got.HandoffLimit != 5 || got.ServerAddr != "127.0.0.1:1":
		t.Errorf("the file must count: %v %v", got.HandoffLimit, got.ServerAddr)
	case strings.Join(got.EtcdEndpoints, "|") != "a:1|b:2":
		t.Errorf("endpoints: %q", got.EtcdEndpoints)
	case !got.EtcdUnsafeVersions:
		t.Error("a flag without a value means true")
	}
	if got, err = load(t, file, []string{"FENCELOCK_LOCK_SESSION_TTL=30s"}); err != nil || got.SessionTTL != 30*time.Second {
		t.Errorf("a variable must win over the file: %v, %v", got.SessionTTL, err)
	}
	if got, err = load(t, file, nil, "--etcd.endpoints=c:3, d:4"); err != nil || strings.Join(got.EtcdEndpoints, "|") != "c:3|d:4" {
		t.Errorf("a list is replaced, not added to: %q, %v", got.EtcdEndpoints, err)
	}
}

// TestRow46WhatCannotBeIsRefusedInOneLine covers each source and each rule.
func TestRow46WhatCannotBeIsRefusedInOneLine(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		file string
		env  []string
		args []string
		says string
	}{
		"unknown key in the file":       {file: "lock.session.tll: 15s\n", says: "lock.session.tll"},
		"unknown nested key":            {file: "lock:\n  session:\n    tll: 15s\n", says: "lock.session.tll"},
		"unknown variable of a section": {env: []string{"FENCELOCK_LOCK_SESSION_TLL=15s"}, says: "FENCELOCK_LOCK_SESSION_TLL"},
		"unknown variable":              {env: []string{"FENCELOCK_SESION_TTL=15s"}, says: "FENCELOCK_SESION_TTL"},
		"unknown flag":                  {args: []string{"--lock.session.tll=15s"}, says: "lock.session.tll"},
		"key twice":                     {file: "lock.session.ttl: 15s\nlock:\n  session.ttl: 16s\n", says: "twice"},
		"key twice in one place":        {file: "log.level: info\nlog.level: warn\n", says: "already defined"},
		"no YAML":                       {file: "{{{", says: "yaml"},
		"list at the top":               {file: "- a\n", says: "yaml"},
		"bad duration":                  {file: "lock.session.ttl: soon\n", says: "lock.session.ttl"},
		"duration without a unit":       {file: "lock.session.ttl: 15\n", says: "lock.session.ttl"},
		"bad duration in a variable":    {env: []string{"FENCELOCK_LOCK_WAIT_MAX=long"}, says: "FENCELOCK_LOCK_WAIT_MAX"},
		"bad number":                    {args: []string{"--lock.handoff.limit=many"}, says: "lock.handoff.limit"},
		"bad flag value":                {args: []string{"--etcd.unsafe-versions=perhaps"}, says: "etcd.unsafe-versions"},
		"argument that is no flag":      {args: []string{"--log.level=info", "more"}, says: "more"},
		"file that is not there":        {args: []string{"--config=/does/not/exist"}, says: "/does/not/exist"},
		"database without its backend":  {args: []string{"--postgres.url=postgres://db/locks"}, says: "postgres.url: is set, but lock.backend is etcd"},
		"pooler without its backend":    {args: []string{"--postgres.pooler"}, says: "postgres.pooler: is set, but lock.backend is etcd"},
		"notes without their backend":   {args: []string{"--postgres.state-dir=/notes"}, says: "postgres.state-dir: is set, but lock.backend is etcd"},
		"no database":                   {args: []string{"--lock.backend=postgres"}, says: "postgres.url: must be set"},
		"no directory for notes":        {args: onPostgres("--postgres.state-dir="), says: "postgres.state-dir"},
		"database that is no URL":       {args: onPostgres("--postgres.url=db.example/locks"), says: "postgres.url"},
		"database of another kind":      {args: onPostgres("--postgres.url=mysql://db/locks?a=b"), says: "postgres.url"},
		"pool without connections":      {args: onPostgres("--postgres.url=postgres://db/locks?pool_max_conns=0"), says: "postgres.url: cannot be used: pool_max_conns too small"},
		"sslmode that is not there":     {args: onPostgres("--postgres.url=postgres://db/locks?sslmode=perhaps"), says: "sslmode is invalid"},
		"listening at what is no URL":   {args: onPostgres("--postgres.listen-url=db"), says: "postgres.listen-url"},
		"backend that nobody knows":     {args: []string{"--lock.backend=paper"}, says: "paper"},
		"ttl too short":                 {args: []string{"--lock.session.ttl=1s"}, says: "lock.session.ttl"},
		"ttl too long":                  {args: []string{"--lock.session.ttl=11m"}, says: "lock.session.ttl"},
		"lease too short":               {args: []string{"--lock.default.lease=1s"}, says: "lock.default.lease"},
		"margin of one":                 {args: []string{"--lock.client.safety-margin=1"}, says: "safety-margin"},
		"margin that is no number":      {args: []string{"--lock.client.safety-margin=NaN"}, says: "safety-margin"},
		"negative handoff limit":        {args: []string{"--lock.handoff.limit=-1"}, says: "lock.handoff.limit"},
		"no waiters":                    {args: []string{"--lock.waiters.per-key=0"}, says: "lock.waiters.per-key"},
		"fewer waiters than of one key": {args: []string{"--lock.waiters.total=10"}, says: "lock.waiters.total"},
		"wait above an hour":            {args: []string{"--lock.wait.max=2h"}, says: "lock.wait.max"},
		"no time to drain":              {args: []string{"--server.drain-timeout=0s"}, says: "server.drain-timeout"},
		"no prefix":                     {args: []string{"--etcd.prefix="}, says: "etcd.prefix"},
		"no directory":                  {args: []string{"--etcd.data-dir="}, says: "etcd.data-dir"},
		"endpoint with a space":         {args: []string{"--etcd.endpoints=a b"}, says: "etcd.endpoints"},
		"address without a port":        {args: []string{"--server.addr=localhost"}, says: "server.addr"},
		"admin address without a port":  {args: []string{"--admin.addr=localhost"}, says: "admin.addr"},
		"level that is not there":       {args: []string{"--log.level=loud"}, says: "log.level"},
		"log format that is not there":  {args: []string{"--log.format=xml"}, says: "log.format"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := load(t, test.file, test.env, test.args...)
			if err == nil {
				t.Fatal("it was taken")
			}
			if text := err.Error(); !strings.Contains(text, test.says) || strings.ContainsRune(text, '\n') {
				t.Errorf("error %q, want one line that names %q", text, test.says)
			}
		})
	}
}

func TestHelpNamesEveryKey(t *testing.T) {
	t.Parallel()
	if _, err := load(t, "", nil, "--help"); !errors.Is(err, settings.ErrHelp) {
		t.Errorf("--help: %v", err)
	}
	for line := range strings.Lines(printed(t, config.Config{})) {
		key, _, _ := strings.Cut(line, ":")
		if !strings.Contains(config.Usage(), "--"+key) {
			t.Errorf("%s is not in the usage", key)
		}
	}
}

func TestWhatIsPrintedReadsBackTheSameAndHidesPasswords(t *testing.T) {
	t.Parallel()
	first, err := load(t, "", nil, "--lock.session.ttl=33s", "--etcd.endpoints=a:1,b:2", "--log.format=text")
	if err != nil {
		t.Fatal(err)
	}
	second, err := load(t, printed(t, first), nil)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := printed(t, first), printed(t, second); a != b {
		t.Errorf("printed:\n%s\nread back:\n%s", a, b)
	}
	secret, err := load(t, "", nil, "--etcd.endpoints=http://root:hunter2@a:1")
	if err != nil {
		t.Fatal(err)
	}
	if text := printed(t, secret); strings.Contains(text, "hunter2") || !strings.Contains(text, "root:xxxxx@a:1") {
		t.Errorf("printed: %s", text)
	}
}

func TestAddressesThatOthersCanReachAreNamed(t *testing.T) {
	t.Parallel()
	for addr, open := range map[string]bool{
		"127.0.0.1:1": false, "[::1]:1": false, "localhost:1": false, "0.0.0.0:1": true, ":1": true, "10.0.0.1:1": true, "example.org:1": true,
	} {
		c, err := load(t, "", nil, "--server.addr="+addr)
		if err != nil {
			t.Fatal(err)
		}
		if got := len(c.OpenToNetwork()) == 1; got != open {
			t.Errorf("%s: open %t, want %t", addr, got, open)
		}
	}
}
