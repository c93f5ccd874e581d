// Package config is what can be set about the programs of the payout system: a struct for each, one key per field, read and
// checked as a whole. Where the values come from is said in apps/program/settings.
package config
