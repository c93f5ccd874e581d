// Package postgres keeps Fencelock's sessions, grants and revocations in PostgreSQL. A [Store] keeps
// nothing that it could not lose: any number of them share one database.
package postgres
