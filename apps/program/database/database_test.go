package database_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencelock/fencelock/apps/program/database"
	"github.com/fencelock/fencelock/apps/program/settings"
)

func TestWhatIsShownHasNoSecrets(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"":                                     "",
		"postgres://app:hunter2@db:5432/locks": "postgres://app:xxxxx@db:5432/locks",
		"postgres://app@db/locks?sslpassword=hunter2&passfile=/p": "postgres://app@db/locks?sslpassword=xxxxx&passfile=/p",
		"host=db password='hunter2' dbname=locks":                 "host=db password=xxxxx dbname=locks",
		"postgres://app:hunter2/x@db":                             settings.Hidden,
		"anything else that holds hunter2":                        settings.Hidden,
	} {
		if got := database.Shown(url); got != want {
			t.Errorf("%s is shown as %s, want %s", url, got, want)
		}
	}
}

func TestWhatCannotBeUsedIsRefusedWithoutBeingQuoted(t *testing.T) {
	t.Parallel()
	for url, says := range map[string]string{
		"": "payment.url: is no URL", "db/hunter2": "payment.url: is no URL", "mysql://app:hunter2@db/x": "payment.url: is no URL",
		"postgres://app:x/hunter2@db/locks": "payment.url: is no URL", "postgres://app:hunter2@db/x?pool_max_conns=0": "payment.url: cannot be used: pool_max_conns too small",
		"postgres://db/x?pool_max_conns=many":                         `payment.url: cannot be used: cannot parse pool_max_conns ("many" is no number)`,
		"postgres://db/x?connect_timeout=1" + strings.Repeat("0", 30): `" is out of range)`,
	} {
		err := database.Check("payment.url", url)
		if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", url, err)
		}
	}
	if err := database.Check("payment.url", "postgres://app:hunter2@db/locks"); err != nil {
		t.Error(err)
	}
}

// FuzzRedaction looks that what is shown is what the driver reads, with another password.
func FuzzRedaction(f *testing.F) {
	for _, seed := range []string{
		"postgres://app:hunter2@db:5432/locks?sslmode=disable&password=x", "postgres://a?b=c@[::1/?]:1,b/c?d=e", "postgres://db?a=b&password=@/",
		`host=db user='a b' password=it\'s  sslpassword = '\\' dbname=x`, "password= user=x", "user=a\vpassword=b",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, url string) {
		want, err := pgxpool.ParseConfig(url)
		shown := database.Shown(url)
		if err != nil || shown == settings.Hidden || url == "" {
			return
		}
		got, err := pgxpool.ParseConfig(shown)
		if err != nil {
			t.Fatalf("%q is shown as %q, which cannot be read", url, shown)
		}
		if want.ConnConfig.Password != "" || got.ConnConfig.Password == settings.Hidden {
			want.ConnConfig.Password = settings.Hidden // an empty one may be shown so, too
		}
		for name := range want.ConnConfig.RuntimeParams {
			if strings.Contains(strings.ToLower(name), "pass") {
				want.ConnConfig.RuntimeParams[name] = settings.Hidden
			}
		}
		a, b := want.ConnConfig, got.ConnConfig
		if a.Host != b.Host || a.Port != b.Port || a.User != b.User || a.Database != b.Database || a.Password != b.Password ||
			len(a.Fallbacks) != len(b.Fallbacks) || !maps.Equal(a.RuntimeParams, b.RuntimeParams) {
			t.Errorf("%q is shown as %q", url, shown)
		}
		_ = database.Place(url)
	})
}

func TestADatabaseIsCalledByItsPlace(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"postgres://app:hunter2@db/locks":                     "db:5432/locks",
		"postgres://app:hunter2@a:1,b:2/locks":                "a:1,b:2/locks",
		"postgres://app:hunter2@[::1]:5433/locks?sslmode=any": "xxxxx",
		"host=/tmp dbname=locks password=hunter2":             "/tmp:5432/locks",
		"postgres://app:hunter2@[::1]:5433/locks":             "[::1]:5433/locks",
		"nothing": "xxxxx",
	} {
		if got := database.Place(url); got != want {
			t.Errorf("%s is called %s, want %s", url, got, want)
		}
	}
}
