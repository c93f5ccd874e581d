// Package cancel ends calls to PostgreSQL whose context has ended, and keeps their connections.
package cancel
