package stack

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/fencelock/fencelock/tools/drills/judge"
)

// Destinations with a meaning to the rail.
const (
	// ToDecline is declined.
	ToDecline = "decline"
	// ToLoseReply is executed, and nobody is told.
	ToLoseReply = "lost-reply"
	// ToLoseRequest is not executed, and nobody is told.
	ToLoseRequest = "lost-request"
)

// Transfers lists what the rail has executed or declined.
func (s *Stack) Transfers(ctx context.Context) ([]judge.Transfer, error) {
	var listing struct {
		Transfers []struct {
			Reference string `json:"reference"`
			Amount    int64  `json:"amount"`
			Status    string `json:"status"`
		} `json:"transfers"`
	}
	if err := s.bank(ctx, http.MethodGet, "/transfers", nil, &listing); err != nil {
		return nil, fmt.Errorf("list transfers: %w", err)
	}
	all := make([]judge.Transfer, 0, len(listing.Transfers))
	for _, t := range listing.Transfers {
		all = append(all, judge.Transfer{Payout: t.Reference, Amount: t.Amount, Taken: t.Status == "executed"})
	}
	return all, nil
}

// Faults is what the rail shall do wrong.
type Faults struct {
	// Latency is a duration such as 200ms.
	Latency string `json:"latency"`
	// Decline and LoseReply are shares, 0 to 1.
	Decline   float64 `json:"decline"`
	LoseReply float64 `json:"lose_reply"`
}

// SetFaults changes what the rail does wrong from now on.
func (s *Stack) SetFaults(ctx context.Context, f Faults) error {
	if f.Latency == "" {
		f.Latency = "0s"
	}
	if err := s.bank(ctx, http.MethodPost, "/faults", f, nil); err != nil {
		return fmt.Errorf("set faults of the rail: %w", err)
	}
	return nil
}

// bank calls the rail.
func (s *Stack) bank(ctx context.Context, method, path string, body, into any) error {
	var send io.Reader = http.NoBody
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return fmt.Errorf("encode: %w", err)
		}
		send = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, s.Bank.URL+path, send)
	if err != nil {
		return fmt.Errorf("make request: %w", err)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return fmt.Errorf("call: %w", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %s: %s", resp.Status, text)
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("decode: %w", err)
	}
	return nil
}
