package rail

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/fencelock/fencelock/apps/payments/internal/bank"
	"github.com/fencelock/fencelock/apps/payments/internal/form"
)

const (
	// maxAnswer bounds what is read of one answer, in bytes.
	maxAnswer = 1 << 20
	// dialLimit bounds the making of a connection.
	dialLimit = 5 * time.Second
)

// Client speaks with the rail. It sends what it is asked to send once: no redirect is followed, and no connection is used
// twice, since Go's transport sends a request again where a connection that was kept turns out to be closed.
type Client struct {
	base *url.URL
	http *http.Client
}

// NewClient returns a Client of the rail at a URL such as http://127.0.0.1:8484.
func NewClient(address string) (*Client, error) {
	base, err := url.Parse(address)
	if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" || base.RawQuery != "" || base.Fragment != "" {
		return nil, fmt.Errorf("the rail needs a URL such as http://127.0.0.1:8484")
	}
	return &Client{base: base, http: &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true, DialContext: (&net.Dialer{Timeout: dialLimit}).DialContext},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// answer is what the rail said of a transfer.
type answer struct {
	outcome           Outcome
	reference, reason string
}

// send sends an order. Whatever is not an answer that settles it is [Unknown], with an error that says why.
func (c *Client) send(ctx context.Context, o Order) (answer, error) {
	body, err := json.Marshal(bank.Order{Reference: o.Payout, Amount: o.Amount, Destination: o.Destination})
	if err != nil {
		return answer{}, fmt.Errorf("encode order: %w", err)
	}
	var t bank.Transfer
	status, err := c.call(ctx, http.MethodPost, c.base.JoinPath("transfers"), body, &t)
	if err != nil {
		return answer{}, err
	}
	if !isOf(t, o) {
		return answer{}, fmt.Errorf("send order: the rail answers %d, and not about it", status)
	}
	switch {
	case status == http.StatusCreated && t.Status == bank.Executed:
		return answer{Acked, t.ID, ""}, nil
	case status == http.StatusUnprocessableEntity && t.Status == bank.Declined:
		return answer{Rejected, t.ID, "the rail declined it"}, nil
	}
	return answer{}, fmt.Errorf("send order: the rail answers %d, which settles nothing", status)
}

// isOf reports whether a transfer can be that of an order, and has a name that can be written down, here and in the payment resource.
func isOf(t bank.Transfer, o Order) bool {
	return t.Reference == o.Payout && t.Amount == o.Amount && t.ID != "" && form.Text("id", t.ID, form.MaxDestination) == nil
}

// find asks, without sending anything, what the rail has received of an order, and how many transfers of those it has executed.
func (c *Client) find(ctx context.Context, o Order) (a answer, executed int, err error) {
	where := c.base.JoinPath("transfers")
	where.RawQuery = url.Values{"reference": {o.Payout}}.Encode()
	var list bank.Listing
	status, err := c.call(ctx, http.MethodGet, where, nil, &list)
	if err != nil {
		return answer{}, 0, err
	}
	if status != http.StatusOK {
		return answer{}, 0, fmt.Errorf("look up order: the rail answers %d", status)
	}
	for _, t := range list.Transfers {
		switch {
		case !isOf(t, o):
			return answer{}, 0, errors.New("look up order: the rail answers about another one")
		case t.Status == bank.Executed:
			executed++
			if a.outcome != Acked {
				a = answer{Acked, t.ID, ""}
			}
		case t.Status == bank.Declined && a.outcome == Unknown:
			a = answer{Rejected, t.ID, "the rail declined it"}
		}
	}
	return a, executed, nil
}

// call makes one request and reads the JSON of its answer.
func (c *Client) call(ctx context.Context, method string, where *url.URL, body []byte, into any) (status int, err error) {
	request, err := http.NewRequestWithContext(ctx, method, where.String(), bytes.NewReader(body))
	if err != nil {
		return 0, fmt.Errorf("ask the rail: %w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := c.http.Do(request)
	if err != nil {
		return 0, fmt.Errorf("ask the rail: %w", err)
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	if err := json.NewDecoder(io.LimitReader(response.Body, maxAnswer)).Decode(into); err != nil {
		return 0, fmt.Errorf("read the rail's answer %d: %w", response.StatusCode, err)
	}
	return response.StatusCode, nil
}
