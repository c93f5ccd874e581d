// Package database is about the URLs of PostgreSQL in configurations: whether they can be used, and what may be shown of them.
package database
