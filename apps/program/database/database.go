package database

import (
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencelock/fencelock/apps/program/settings"
)

// Check refuses the value of a key that is no URL of PostgreSQL, and no list name=value, or that cannot be used. The error
// never quotes it: of a URL that is not what it should be, any part may be a password.
func Check(key, text string) error {
	if _, ok := redact(text); !ok {
		return fmt.Errorf("%s: is no URL of PostgreSQL (postgres://host:5432/database, with role and password before the host); "+
			"in a password write slash as %%2F, at sign as %%40, colon as %%3A, question mark as %%3F, percent sign as %%25", key)
	}
	if _, err := pgxpool.ParseConfig(text); err != nil {
		return fmt.Errorf("%s: cannot be used: %s", key, reason(err))
	}
	return nil
}

// reason is what the driver says of a URL, without the URL. Where it could not even parse it, it quotes parts of it.
func reason(err error) string {
	_, reason, quotes := cutLast(settings.Line(err), "`: ")
	if !quotes || strings.HasPrefix(reason, "failed to parse") {
		return "its syntax is wrong"
	}
	reason = regexp.MustCompile(`strconv\.\w+: parsing ("[^"]*"): invalid syntax`).ReplaceAllString(reason, "$1 is no number")
	return regexp.MustCompile(`strconv\.\w+: parsing ("[^"]*"): value out of range`).ReplaceAllString(reason, "$1 is out of range")
}

// Shown is a URL of PostgreSQL with what is secret in it replaced.
func Shown(text string) string {
	if text == "" {
		return ""
	}
	shown, ok := redact(text)
	if !ok {
		return settings.Hidden
	}
	return shown
}

// redact replaces what is secret; ok is false where that cannot be told for sure. It takes text apart as the driver does.
func redact(text string) (shown string, ok bool) {
	for _, scheme := range []string{"postgres://", "postgresql://"} {
		if rest, ok := strings.CutPrefix(text, scheme); ok {
			shown, ok := redactURL(rest)
			return scheme + shown, ok
		}
	}
	return redactPairs(text)
}

// redactURL is redact for what follows the scheme: [user[:password]@]hosts[/database][?name=value&...].
func redactURL(rest string) (shown string, ok bool) {
	if i := strings.IndexAny(rest, "@/"); i >= 0 && rest[i] == '@' {
		user, _, secret := strings.Cut(rest[:i], ":")
		if secret {
			user += ":" + settings.Hidden
		}
		shown, rest = user+"@", rest[i+1:]
	}
	place, query, asked := strings.Cut(rest, "?")
	if strings.Contains(place, "@") {
		return "", false // the end of a password that holds an @ or a /
	}
	shown += place
	if !asked {
		return shown, true
	}
	pairs := strings.Split(query, "&")
	for i, pair := range pairs {
		raw, _, _ := strings.Cut(pair, "=")
		name, err := url.PathUnescape(raw)
		if err != nil || !parameter.MatchString(name) {
			return "", false
		}
		if secret(name) {
			pairs[i] = raw + "=" + settings.Hidden
		}
	}
	return shown + "?" + strings.Join(pairs, "&"), true
}

var (
	// parameter is the name of a parameter.
	parameter = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.]*$`)
	// pair is the first name = value of a list, where the value may stand in quotes. A vertical tab is a blank to the driver.
	pair = regexp.MustCompile(`(?s)^([^\s\v=]+)[\s\v]*=[\s\v]*('(?:[^'\\]|\\.)*'|(?:[^\s\v'\\]|\\.)(?:[^\s\v\\]|\\.)*|)(?:[\s\v]+|$)`)
)

// blanks are what the driver takes for one.
const blanks = " \t\n\r\v\f"

// redactPairs is redact for a list of name=value.
func redactPairs(rest string) (shown string, ok bool) {
	var pairs []string
	for rest = strings.TrimLeft(rest, blanks); rest != ""; {
		match := pair.FindStringSubmatch(rest)
		if match == nil || !parameter.MatchString(match[1]) {
			return "", false
		}
		value := match[2]
		if secret(match[1]) {
			value = settings.Hidden
		}
		pairs = append(pairs, match[1]+"="+value)
		rest = rest[len(match[0]):]
	}
	return strings.Join(pairs, " "), len(pairs) > 0
}

// secret reports whether a parameter of that name may hold a secret.
func secret(name string) bool {
	name = strings.ToLower(name)
	return name != "passfile" && slices.ContainsFunc([]string{"pass", "secret", "scram", "token"}, func(part string) bool {
		return strings.Contains(name, part)
	})
}

// Place names the database of a URL without its secrets: hosts and name.
func Place(text string) string {
	pool, err := pgxpool.ParseConfig(text)
	if err != nil {
		return settings.Hidden
	}
	conn := pool.ConnConfig
	hosts := []string{net.JoinHostPort(conn.Host, strconv.Itoa(int(conn.Port)))}
	for _, other := range conn.Fallbacks {
		hosts = append(hosts, net.JoinHostPort(other.Host, strconv.Itoa(int(other.Port))))
	}
	// With sslmode=prefer each host is there twice.
	return strings.Join(slices.Compact(hosts), ",") + "/" + conn.Database
}

// cutLast is strings.Cut at the last separator.
func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}
