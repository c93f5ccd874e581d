package settings

import (
	"net/url"
	"regexp"
	"strings"
)

// Hidden stands for what is secret, or could be.
const Hidden = "xxxxx"

// Line is an error in one line, [Censor]ed.
func Line(err error) string { return Censor(strings.Join(strings.Fields(err.Error()), " ")) }

// Censor removes from a message for people what could be a password: of a URL, or behind a name like password.
// Arguments that were put in the wrong place are quoted in messages of libraries.
func Censor(message string) string {
	userinfo := regexp.MustCompile(`(?s)://.*@`)
	password := regexp.MustCompile(`(?is)(\w*pass\w*)\s*=\s*('(?:[^'\\]|\\.)*'|[^\s&'"]*)`)
	message = userinfo.ReplaceAllLiteralString(message, "://"+Hidden+"@")
	return password.ReplaceAllString(message, "$1="+Hidden)
}

// ShownURLs are addresses, separated by commas, of which none is of a database, with passwords replaced.
func ShownURLs(list string) string {
	parts := strings.Split(list, ",")
	for i, part := range parts {
		if u, err := url.Parse(part); err == nil && u.User != nil {
			parts[i] = u.Redacted()
		}
	}
	return strings.Join(parts, ",")
}
