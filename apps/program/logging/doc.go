// Package logging makes the loggers of programs, and has the keys that they are set by.
package logging
