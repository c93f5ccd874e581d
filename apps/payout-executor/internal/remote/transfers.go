package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

// maxListing bounds the rail's listing, in bytes.
const maxListing = 256 << 20

// Transfer is what the rail itself has of a request.
type Transfer struct {
	// Payout is the reference that it was requested under.
	Payout string
	// Amount in minor units.
	Amount int64
	// Executed: the money has moved. Else it was declined.
	Executed bool
}

// Transfers reads the rail's own listing, which is read-only, at a URL such as http://host:port/transfers. A URL without a path means
// that path.
func Transfers(ctx context.Context, c *http.Client, address string) ([]Transfer, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("list transfers: %w", err)
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/transfers"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("list transfers: %w", err)
	}
	resp, err := c.Do(req)
	if err != nil {
		return nil, fmt.Errorf("list transfers: %w", err)
	}
	defer func() { _ = resp.Body.Close() }() // it was read
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("list transfers: the rail says %s", resp.Status)
	}
	var listing struct {
		Transfers []struct {
			Reference string `json:"reference"`
			Amount    int64  `json:"amount"`
			Status    string `json:"status"`
		} `json:"transfers"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxListing)).Decode(&listing); err != nil {
		return nil, fmt.Errorf("list transfers: %w", err)
	}
	found := make([]Transfer, 0, len(listing.Transfers))
	for _, t := range listing.Transfers {
		found = append(found, Transfer{Payout: t.Reference, Amount: t.Amount, Executed: t.Status != "declined"})
	}
	return found, nil
}
