// Package parity is the behavioural suite that every backend passes.
package parity
