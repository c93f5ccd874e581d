package config_test

import (
	"strings"
	"testing"

	"github.com/fencelock/fencelock/apps/lockserver/config"
)

// password stands in every URL here.
const password = "hunter2"

func TestPasswordsOfTheDatabaseAreNotPrinted(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"postgres://app:hunter2@db:5432/locks":                                      "postgres://app:xxxxx@db:5432/locks",
		"postgresql://app:hunter2@db/locks?sslmode=disable":                         "postgresql://app:xxxxx@db/locks?sslmode=disable",
		"postgres://app:hunter2%40x@a:1,b:2/locks?pool_max_conns=4":                 "postgres://app:xxxxx@a:1,b:2/locks?pool_max_conns=4",
		"postgres://app:hunter2?#&=:x@[::1]:5432/locks":                             "postgres://app:xxxxx@[::1]:5432/locks",
		"postgres://:hunter2@db/locks":                                              "postgres://:xxxxx@db/locks",
		"postgres://app@db/locks?password=hunter2&application_name=x":               "postgres://app@db/locks?password=xxxxx&application_name=x",
		"postgres://app@db/locks?pass%77ord=hunter2":                                "postgres://app@db/locks?pass%77ord=xxxxx",
		"postgres://db/locks?user=app&sslpassword=hunter2&passfile=/p":              "postgres://db/locks?user=app&sslpassword=xxxxx&passfile=/p",
		"postgres:///locks?host=/tmp&password=hunter2":                              "postgres:///locks?host=/tmp&password=xxxxx",
		"host=db user=app password=hunter2 dbname=locks":                            "host=db user=app password=xxxxx dbname=locks",
		`host=db password = 'hunter2 it\'s' sslpassword=hunter2\ x dbname='/locks'`: "host=db password=xxxxx sslpassword=xxxxx dbname='/locks'",
	} {
		for _, key := range []string{"postgres.url", "postgres.listen-url"} {
			c, err := load(t, "", nil, onPostgres("--"+key+"="+url)...)
			if err != nil {
				t.Errorf("%s: %v", url, err)
				continue
			}
			text := printed(t, c)
			if strings.Contains(text, password) || !strings.Contains(text, key+": "+quote(want)+"\n") {
				t.Errorf("%s: printed %s", url, text)
			}
			if got := c.Database(); strings.Contains(got, password) || !strings.Contains(got, "/locks") {
				t.Errorf("%s: called %s", url, got)
			}
		}
	}
	// What was not checked may be anything.
	text := printed(t, config.Config{PostgresURL: "postgres://app:hunter2/x@db"})
	if strings.Contains(text, password) {
		t.Errorf("printed %s", text)
	}
}

func quote(s string) string { return `"` + s + `"` }

func TestMistakesDoNotShowPasswords(t *testing.T) {
	t.Parallel()
	const url = "postgres://app:hunter2@db/locks"
	backend := "--lock.backend=postgres"
	for name, test := range map[string]struct {
		file string
		env  []string
		args []string
	}{
		"argument that is no flag":     {args: []string{backend, url}},
		"one dash":                     {args: []string{backend, "-postgres.url=" + url}},
		"misspelt flag":                {args: []string{backend, "--postgres.urll=" + url}},
		"flag without a name":          {args: []string{backend, "--=" + url}},
		"misspelt variable":            {env: []string{"FENCELOCK_POSTGRES_URLL=" + url}},
		"misspelt key":                 {file: "postgres:\n  urll: " + url},
		"no space behind the key":      {file: "postgres.url:" + url},
		"key that is a URL":            {file: url + ": x"},
		"the pooler's address":         {args: []string{backend, "--postgres.pooler=" + url}},
		"the pooler's address as such": {env: []string{"FENCELOCK_POSTGRES_POOLER=host=db password=hunter2"}},
		"a number":                     {env: []string{"FENCELOCK_LOCK_WAITERS_TOTAL=" + url}},
		"backend":                      {args: []string{"--lock.backend=" + url}},
		"without the backend":          {args: []string{"--postgres.url=" + url}},
		"slash":                        {args: onPostgres("--postgres.url=postgres://app:x/hunter2@db/locks")},
		"slash after a number":         {args: onPostgres("--postgres.url=postgres://app:12/hunter2@db/locks")},
		"at":                           {args: onPostgres("--postgres.url=postgres://app:x@hunter2@db/locks")},
		"colon and slash":              {args: onPostgres("--postgres.url=postgres://app:x:hunter2/@db/locks")},
		"no host":                      {args: onPostgres("--postgres.url=postgres://app:hunter2/locks")},
		"percent":                      {args: onPostgres("--postgres.url=postgres://app:%hunter2@db/locks")},
		"ampersand":                    {args: onPostgres("--postgres.url=postgres://db/locks?password=x&hunter2")},
		"blank":                        {args: onPostgres("--postgres.url=host=db password=x hunter2")},
		"blank and more":               {args: onPostgres("--postgres.url=host=db password=x hunter2 user=app")},
		"blank and sign":               {args: onPostgres("--postgres.url=host=db password=x !hunter2=x user=app")},
		"open quote":                   {args: onPostgres("--postgres.url=host=db password='hunter2 user=app")},
		"other scheme":                 {args: onPostgres("--postgres.url=jdbc:postgresql://app:hunter2@db/locks?a=b")},
		"bad parameter":                {args: onPostgres("--postgres.url=" + url + "?connect_timeout=soon")},
		"bad parameter in a list":      {args: onPostgres("--postgres.url=password='hunter2`: x' host=db pool_max_conns=x")},
		"bad listener":                 {args: onPostgres("--postgres.listen-url=http://app:hunter2@db/locks")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := load(t, test.file, test.env, test.args...)
			if err == nil {
				t.Fatal("it was taken")
			}
			if text := err.Error(); strings.Contains(text, "hunter2") || strings.ContainsRune(text, '\n') {
				t.Errorf("error %q", text)
			}
		})
	}
}

func TestKeysOfTheOtherBackendAreKnown(t *testing.T) {
	t.Parallel()
	c, err := load(t, "", nil, onPostgres("--etcd.data-dir=/elsewhere", "--etcd.endpoints=a:1", "--etcd.prefix=fencelock/")...)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(c.Unused(), " "); got != "etcd.endpoints etcd.data-dir" {
		t.Errorf("unused: %s", got)
	}
	if c.Embedded() {
		t.Error("a server on PostgreSQL embeds no etcd")
	}
	if c, err = load(t, "", nil, "--etcd.data-dir=/elsewhere"); err != nil || len(c.Unused()) != 0 {
		t.Errorf("unused: %v, %v", c.Unused(), err)
	}
}
