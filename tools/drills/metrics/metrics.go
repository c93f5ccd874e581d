package metrics

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// Scrape is one look at a program: series, as name{label="value"}, and their values.
type Scrape map[string]float64

// Get scrapes the program whose admin address is at the URL.
func Get(ctx context.Context, client *http.Client, admin string) (Scrape, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, admin+"/metrics", http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("scrape: %w", err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("scrape: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("scrape %s: status %s", admin, resp.Status)
	}
	return Read(resp.Body)
}

// Read reads the text format, of lines without timestamps.
func Read(r io.Reader) (Scrape, error) {
	s := Scrape{}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		cut := strings.LastIndexByte(line, ' ')
		if cut < 0 {
			return nil, fmt.Errorf("read metrics: no value in %q", line)
		}
		value, err := strconv.ParseFloat(line[cut+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("read metrics: %w", err)
		}
		s[line[:cut]] = value
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	return s, nil
}

// Value returns the value of a series; ok is false where it is not exposed.
func (s Scrape) Value(series string) (value float64, ok bool) {
	value, ok = s[series]
	return value, ok
}

// Of returns the series of a metric.
func (s Scrape) Of(metric string) Scrape {
	found := Scrape{}
	for series, value := range s {
		if name(series) == metric {
			found[series] = value
		}
	}
	return found
}

// Sum adds up the series.
func (s Scrape) Sum() float64 {
	sum := 0.0
	for _, value := range s {
		sum += value
	}
	return sum
}

// Names returns the names of all metrics but those of runtime and process (go_ and process_), sorted.
func (s Scrape) Names() []string {
	names := map[string]bool{}
	for series := range s {
		n := name(series)
		if !strings.HasPrefix(n, "go_") && !strings.HasPrefix(n, "process_") {
			names[n] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

func name(series string) string {
	n, _, _ := strings.Cut(series, "{")
	return n
}
