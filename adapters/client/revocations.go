package client

import (
	"context"
	"iter"

	"connectrpc.com/connect"

	v1 "github.com/fencelock/fencelock/contracts/api/fencelock/v1"
	"github.com/fencelock/fencelock/core/lock"
)

// Sizes of pages. Who looks for news only is done with the first one.
const (
	firstPage   = 100
	furtherPage = 1000
)

// Revocations lists what operators have done in a namespace, the newest first: revocations, and raised floors, which have
// no key and concern all namespaces. An empty namespace means the default one. PreviousSession stays zero: ids of
// sessions are secrets. Pages are fetched as the loop goes on, each with retries within the call timeout;
// an error is the last thing that the loop sees. Errors are [lock.ErrInvalid] (namespace), [lock.ErrDenied], and retryable ones.
//
// It is what a fence.Follower of core/fence reads, which raises the fence of a resource once a holder is revoked.
func (c *Client) Revocations(ctx context.Context, namespace string) iter.Seq2[lock.Revocation, error] {
	return func(yield func(lock.Revocation, error) bool) {
		req := &v1.ListRevocationsRequest{Namespace: namespace, PageSize: firstPage}
		for {
			page, err := c.revocations(ctx, req)
			if err != nil {
				yield(lock.Revocation{}, err)
				return
			}
			for _, m := range page.GetRevocations() {
				r, err := revocation(m)
				if !yield(r, err) || err != nil {
					return
				}
			}
			if page.GetNextPageToken() == "" {
				return
			}
			req.PageToken, req.PageSize = page.GetNextPageToken(), furtherPage
		}
	}
}

// revocations fetches one page.
func (c *Client) revocations(ctx context.Context, req *v1.ListRevocationsRequest) (page *v1.ListRevocationsResponse, err error) {
	err = c.retry(ctx, func(ctx context.Context) error {
		resp, err := c.adminRPC.ListRevocations(ctx, connect.NewRequest(req))
		if err != nil {
			return Translate(err)
		}
		page = resp.Msg
		return nil
	})
	return page, err
}

// revocation reads one record.
func revocation(m *v1.Revocation) (lock.Revocation, error) {
	r := lock.Revocation{
		ID: m.GetId(), Operator: m.GetOperator(), Reason: m.GetReason(),
		PreviousOwner: lock.Owner(m.GetPreviousOwner()), PreviousToken: lock.Token(m.GetPreviousToken()), Floor: lock.Token(m.GetFloor()),
	}
	if at := m.GetAt(); at != nil {
		r.At = at.AsTime()
	}
	if m.GetKey() == "" {
		return r, nil
	}
	key, err := lock.NewKey(m.GetNamespace(), m.GetKey())
	if err != nil {
		return lock.Revocation{}, errMalformed
	}
	r.Key = key
	return r, nil
}
