// Package stage gives a program what a test would give it: the T of the drills and of the test environment.
package stage
