package client_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/fencelock/fencelock/adapters/client"
	"github.com/fencelock/fencelock/adapters/rpc/guard"
	paymentsv1 "github.com/fencelock/fencelock/contracts/api/fencelock/payments/v1"
	"github.com/fencelock/fencelock/contracts/api/fencelock/payments/v1/paymentsv1connect"
	"github.com/fencelock/fencelock/core/fence"
	"github.com/fencelock/fencelock/core/lock"
)

// fencedResource is a service behind a guard, which refuses inside its own transaction.
type fencedResource struct {
	paymentsv1connect.UnimplementedPaymentServiceHandler
}

func (fencedResource) Claim(
	ctx context.Context, req *connect.Request[paymentsv1.ClaimRequest],
) (*connect.Response[paymentsv1.ClaimResponse], error) {
	token, _ := guard.Token(ctx)
	return nil, &fence.FencedOutError{Resource: req.Msg.GetAccount(), Presented: token, Highest: 34}
}

// TestARefusalOfAResourceIsRebuilt: what a guard of another service refuses is of the closed set here too.
func TestARefusalOfAResourceIsRebuilt(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.Handle(paymentsv1connect.NewPaymentServiceHandler(fencedResource{}, connect.WithInterceptors(
		guard.NewInterceptor(fence.Unsigned{}, func(connect.AnyRequest) (lock.Key, error) { return lock.NewKey("", "payout:1") }))))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	c := paymentsv1connect.NewPaymentServiceClient(server.Client(), server.URL)

	req := connect.NewRequest(&paymentsv1.ClaimRequest{Account: "secret"})
	_, err := c.Claim(t.Context(), req)
	if err = client.Translate(err); !errors.Is(err, lock.ErrInvalid) {
		t.Errorf("without a token: %v", err)
	}
	req.Header().Set(guard.Header, "33")
	_, err = c.Claim(t.Context(), req)
	err = client.Translate(err)
	if !errors.Is(err, lock.ErrFencedOut) || lock.IsRetryable(err) || lock.IsAmbiguous(err) {
		t.Errorf("got %v", err)
	}
	if text := err.Error(); !strings.Contains(text, "33") || !strings.Contains(text, "34") || strings.Contains(text, "secret") {
		t.Errorf("the message is %q", text)
	}
}
