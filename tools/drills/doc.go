// Package drills runs the real programs as processes and does to them what
// happens in production: kill, freeze, cut off, delay. Its tests are the
// end-to-end acceptance of the service.
package drills
