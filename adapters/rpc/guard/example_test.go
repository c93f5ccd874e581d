package guard_test

import (
	"net/http"
	"os"

	"connectrpc.com/connect"

	"github.com/fencelock/fencelock/adapters/rpc/guard"
	"github.com/fencelock/fencelock/contracts/api/fencelock/payments/v1/paymentsv1connect"
	"github.com/fencelock/fencelock/core/fence"
	"github.com/fencelock/fencelock/core/lock"
)

// A service without transactions: the guard admits, and lets the writes of one file through one by one.
func ExampleNewMiddleware() { //nolint:testableexamples // it serves
	keyOf := func(r *http.Request) (lock.Key, error) { return lock.NewKey("", "file:"+r.PathValue("name")) }
	gate := guard.NewGate(newMemory()) // in earnest marks that last: those of adapters/postgres/guard or adapters/etcd/guard
	guarded := guard.NewMiddleware(fence.Unsigned{}, keyOf, guard.WithMarks(gate, fence.NotBelow))

	mux := http.NewServeMux()
	mux.Handle("PUT /files/{name}", guarded(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent) // the write has ended here
	})))
}

// A service with transactions: the guard reads the token, believing only what the lock service has signed for the
// account's key; the handler takes it from its context and shows it to the guard in its transaction.
func ExampleNewInterceptor() { //nolint:testableexamples // it serves
	text, _ := os.ReadFile("fence-public.pem")
	keys, _ := fence.ParsePublicKeys(text)
	verifier, err := fence.NewVerifier(keys...)
	if err != nil {
		return
	}
	interceptor := guard.NewInterceptor(verifier, func(req connect.AnyRequest) (lock.Key, error) {
		m, ok := req.Any().(interface{ GetAccount() string })
		if !ok {
			return lock.Key{}, lock.Invalid("account", "must not be missing")
		}
		return lock.NewKey("", "payout:"+m.GetAccount())
	}, guard.WithUnguarded(paymentsv1connect.PaymentServiceGetPayoutProcedure))

	var service paymentsv1connect.UnimplementedPaymentServiceHandler
	mux := http.NewServeMux()
	mux.Handle(paymentsv1connect.NewPaymentServiceHandler(service, connect.WithInterceptors(interceptor)))
}
