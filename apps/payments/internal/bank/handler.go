package bank

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/fencelock/fencelock/apps/payments/internal/form"
)

// maxBody bounds a request, in bytes.
const maxBody = 64 << 10

// The outcomes of which a [Handler] tells.
const (
	OutcomeExecuted    = "executed"
	OutcomeDeclined    = "declined"
	OutcomeReplyLost   = "reply_lost"
	OutcomeRequestLost = "request_lost"
)

// Handler serves the rail.
type Handler struct {
	log *Log
	mux http.Handler
	// tell is told what became of each transfer.
	tell func(outcome string)
	// stopping ends all latencies.
	stopping context.Context //nolint:containedctx // the life of the rail

	mu     sync.Mutex
	faults Faults
}

// New returns a Handler that keeps what it receives in log. When stopping ends, latencies are cut short.
func New(stopping context.Context, log *Log, faults Faults, tell func(outcome string)) *Handler {
	h := &Handler{log: log, faults: faults, tell: tell, stopping: stopping}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /transfers", h.transfer)
	mux.HandleFunc("GET /transfers", h.list)
	mux.HandleFunc("POST /faults", h.setFaults)
	mux.HandleFunc("GET /faults", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, h.current().shown()) })
	h.mux = http.MaxBytesHandler(mux, maxBody)
	return h
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.mux.ServeHTTP(w, r) }

func (h *Handler) current() Faults {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.faults
}

// Order is the body of POST /transfers.
type Order struct {
	Reference string `json:"reference"`
	// Amount is in minor units.
	Amount      int64  `json:"amount"`
	Destination string `json:"destination"`
}

func (o Order) check() error {
	if err := form.ID("reference", o.Reference); err != nil {
		return err
	}
	if err := form.Amount("amount", o.Amount); err != nil {
		return err
	}
	return form.Destination("destination", o.Destination)
}

// Problem is the body of an answer that is no transfer.
type Problem struct {
	Error string `json:"error"`
}

func (h *Handler) transfer(w http.ResponseWriter, r *http.Request) {
	var order Order
	if err := read(r, &order); err != nil {
		answer(w, http.StatusBadRequest, Problem{"cannot read the order"})
		return
	}
	if err := order.check(); err != nil {
		answer(w, http.StatusBadRequest, Problem{err.Error()})
		return
	}
	faults := h.current()
	fate := faults.draw(order.Destination)
	if fate.loseRequest {
		h.tell(OutcomeRequestLost)
		hangUp()
	}
	h.wait(faults.Latency)
	status, code := Executed, http.StatusCreated
	if fate.decline {
		status, code = Declined, http.StatusUnprocessableEntity
	}
	t, err := h.log.Append(Transfer{
		Reference: order.Reference, Amount: order.Amount, Destination: order.Destination, Status: status, At: time.Now().UTC(),
	})
	switch {
	case err != nil:
		answer(w, http.StatusInternalServerError, Problem{"cannot write the log"})
	case fate.loseReply && !fate.decline:
		h.tell(OutcomeReplyLost)
		hangUp()
	default:
		h.tell(string(status))
		answer(w, code, t)
	}
}

// hangUp closes the connection without an answer.
func hangUp() { panic(http.ErrAbortHandler) }

// wait passes the latency. The caller may leave meanwhile: what it has sent is executed.
func (h *Handler) wait(latency time.Duration) {
	if latency == 0 {
		return
	}
	timer := time.NewTimer(latency)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-h.stopping.Done():
	}
}

// Listing is the body of GET /transfers.
type Listing struct {
	Transfers []Transfer `json:"transfers"`
}

func (h *Handler) list(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	if !query.Has("reference") {
		answer(w, http.StatusOK, Listing{h.log.All()})
		return
	}
	answer(w, http.StatusOK, Listing{h.log.Of(query.Get("reference"))})
}

func (h *Handler) setFaults(w http.ResponseWriter, r *http.Request) {
	var change Change
	if err := read(r, &change); err != nil {
		answer(w, http.StatusBadRequest, Problem{"cannot read the faults"})
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	faults, err := h.faults.change(change)
	if err != nil {
		answer(w, http.StatusBadRequest, Problem{err.Error()})
		return
	}
	h.faults = faults
	answer(w, http.StatusOK, faults.shown())
}

func read(r *http.Request, into any) error {
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	err := decoder.Decode(into)
	if err == nil && decoder.More() {
		err = errors.New("there is more than one value")
	}
	return err
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) //nolint:errchkjson // a caller that has left gets no answer
}
