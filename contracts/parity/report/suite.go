package main

import (
	"strings"
	"unicode"

	"github.com/fencelock/fencelock/contracts/parity"
)

// clause is one subtest of the suite and the cases below it.
type clause struct {
	name  string
	cases []string
}

// suite is what every run must have run.
func suite() []clause {
	var all []clause
	for _, name := range parity.Names() {
		all = append(all, clause{name: name, cases: parity.Cases(name)})
	}
	return all
}

// number is the clause's number, promise its name in words.
func (c clause) number() string { number, _, _ := strings.Cut(c.name, "_"); return number }

func (c clause) promise() string {
	_, slug, _ := strings.Cut(c.name, "_")
	return strings.ReplaceAll(slug, "_", " ")
}

// subtests are the names of the cases as a run shows them.
func (c clause) subtests() []string {
	var names []string
	for _, name := range c.cases {
		names = append(names, c.name+"/"+strings.Map(shown, name))
	}
	return names
}

// shown is how package testing shows a character of a name.
func shown(r rune) rune {
	if unicode.IsSpace(r) {
		return '_'
	}
	return r
}
