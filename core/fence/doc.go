// Package fence is the side of the resource: it refuses a writer whose token is not good any more.
package fence
