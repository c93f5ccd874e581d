package cancel

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
)

// handler is for one connection.
type handler struct {
	conn     *pgconn.PgConn
	patience time.Duration
	// silent: nothing is asked, and the call ends by itself or by its connection's deadline.
	silent bool
	done   chan struct{}
}

// Confirmed asks the database to cancel what a call has sent, once its context has ended, and waits for the database to confirm that it
// has done so: else the request could hit the connection's next statement. The driver's own handler does not wait. A
// connection on which nothing is heard for so long is given up.
func Confirmed(conn *pgconn.PgConn, patience time.Duration) ctxwatch.Handler {
	return &handler{conn: conn, patience: patience}
}

// Unasked gives the call so much time to end by itself, and then gives its connection up. It is for connections that lead through a
// pooler which is not to be asked.
func Unasked(conn *pgconn.PgConn, patience time.Duration) ctxwatch.Handler {
	return &handler{conn: conn, patience: patience, silent: true}
}

// HandleCancel implements ctxwatch.Handler.
func (h *handler) HandleCancel(ended context.Context) {
	deadline := time.Now().Add(h.patience)
	_ = h.conn.Conn().SetDeadline(deadline)
	h.done = make(chan struct{})
	if h.silent {
		close(h.done)
		return
	}
	go func() {
		defer close(h.done)
		ctx, cancel := context.WithDeadline(context.WithoutCancel(ended), deadline)
		defer cancel()
		_ = h.conn.CancelRequest(ctx) // what comes of it shows in the call's own answer
	}()
}

// HandleUnwatchAfterCancel implements ctxwatch.Handler.
func (h *handler) HandleUnwatchAfterCancel() {
	<-h.done
	_ = h.conn.Conn().SetDeadline(time.Time{})
}
