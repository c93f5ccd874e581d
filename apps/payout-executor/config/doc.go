// Package config reads the executor's configuration: one struct, one key per field, checked as a whole. How keys are set is a
// matter of apps/program/settings.
package config
