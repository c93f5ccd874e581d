// Package following runs a follower of revocations for the tests of whatever keeps marks, and hears what it reports.
package following
