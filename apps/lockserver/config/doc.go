// Package config is the lock server's configuration: one struct, one key per field, read by package settings and checked as a
// whole.
package config
