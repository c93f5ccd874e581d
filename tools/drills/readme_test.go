package drills_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/tools/drills"
)

// TestTheCallsOfTheReadmeAreAnswered makes the calls over plain HTTP that the README shows, in their order.
func TestTheCallsOfTheReadmeAreAnswered(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	calls := regexp.MustCompile(`(?m)^curl -s -H "\$json" -d (['"])(.+)['"] \$api\.(\S+)$`).FindAllStringSubmatch(string(text), -1)
	if want := strings.Count(string(text), "\ncurl "); len(calls) != want || want < 6 {
		t.Fatalf("%d of %d calls are understood", len(calls), want)
	}
	s := startServer(t, drills.Embedded(t))
	var session, token string
	for _, call := range calls {
		quote, body, method := call[1], call[2], call[3]
		if quote == `"` {
			body = strings.NewReplacer(`\"`, `"`, "$session", session, "$token", token).Replace(body)
		}
		answer := post(t, s, method, body)
		if id, ok := dig(answer, "session", "id").(string); ok {
			session = id
		}
		if granted, ok := dig(answer, "grant", "token").(string); ok {
			token = granted
		}
		if strings.HasSuffix(method, "/Release") && answer["released"] != true {
			t.Errorf("%s %s: %v", method, body, answer)
		}
	}
}
