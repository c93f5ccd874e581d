package stack

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/tools/drills/judge"
)

// Line is a log line of a program, as far as drills read it.
type Line struct {
	At        time.Time  `json:"time"`
	Event     string     `json:"msg"`
	Namespace string     `json:"namespace"`
	Key       string     `json:"key"`
	Session   string     `json:"session"`
	Token     lock.Token `json:"token"`
	Payout    string     `json:"payout"`
	Account   string     `json:"account"`
	Resource  string     `json:"resource"`
}

// Lines reads what a program has printed, in its order. What is no line of its log, such as the ready line, is left out, and so
// is a last line of a program that died over it.
func Lines(printed string) []Line {
	var lines []Line
	for text := range strings.Lines(printed) {
		var line Line
		if !strings.HasPrefix(text, "{") || json.Unmarshal([]byte(text), &line) != nil {
			continue
		}
		lines = append(lines, line)
	}
	return lines
}

// grants reads the log of one lock server.
func grants(server string, lines []Line) (granted []judge.Grant, released []judge.Release) {
	for _, l := range lines {
		switch {
		case l.Namespace != lock.DefaultNamespace:
		case l.Event == "lock_granted":
			granted = append(granted, judge.Grant{Key: l.Key, Token: l.Token, Session: l.Session, Server: server, At: l.At})
		case l.Event == "lock_released" && l.Token > 0:
			released = append(released, judge.Release{Key: l.Key, Token: l.Token, Session: l.Session})
		}
	}
	return granted, released
}

// uses reads the log of an executor: the events that it tells of before it asks for the release.
func uses(lines []Line) []judge.Use {
	var used []judge.Use
	for _, l := range lines {
		switch l.Event {
		case "payout_claimed", "rail_submitted", "rail_ambiguous", "payout_posted", "payout_failed", "payout_abandoned":
			used = append(used, judge.Use{Key: judge.KeyOf(l.Account), Token: l.Token, At: l.At})
		}
	}
	return used
}
