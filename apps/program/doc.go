// Package program is what the programs of this project have in common: how a main reads its arguments, serves, drains and
// says what went wrong. What they read and serve lies in the packages below: settings, logging, database for the
// configuration; endpoint, admin, tracing for what runs.
package program
