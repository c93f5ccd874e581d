package command

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fencelock/fencelock/core/lock"
)

// printJSON writes one message as one line.
func (p *program) printJSON(m proto.Message) error {
	text, err := protojson.MarshalOptions{EmitDefaultValues: true}.Marshal(m)
	if err != nil {
		return written(err)
	}
	var line bytes.Buffer
	// The library varies its white space on purpose; scripts and tests should not see that.
	if err := json.Compact(&line, text); err != nil {
		return written(err)
	}
	line.WriteByte('\n')
	_, err = line.WriteTo(p.streams.Out)
	return written(err)
}

// written says what an error of the output is about.
func written(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("write output: %w", err)
}

// print writes a message as JSON, or as the two-column table that fields gives.
func (p *program) print(m proto.Message, fields func() []field) error {
	if p.json {
		return p.printJSON(m)
	}
	return p.table(func(w io.Writer) {
		for _, f := range fields() {
			fmt.Fprintf(w, "%s\t%s\n", f.name, f.value)
		}
	})
}

// field is one line of a table about one thing.
type field struct{ name, value string }

// table writes aligned columns.
func (p *program) table(write func(w io.Writer)) error {
	w := tabwriter.NewWriter(p.streams.Out, 0, 0, 2, ' ', 0)
	write(w)
	return written(w.Flush())
}

// listing writes the items of one page: JSON lines, or rows under a header on the first page.
func listing[M proto.Message](p *program, header string, row func(M) []string) func(first bool, items []M) error {
	return func(first bool, items []M) error {
		if !p.json {
			return p.table(func(w io.Writer) {
				if first {
					fmt.Fprintln(w, strings.ReplaceAll(header, " ", "\t"))
				}
				for _, item := range items {
					fmt.Fprintln(w, strings.Join(row(item), "\t"))
				}
			})
		}
		for _, item := range items {
			if err := p.printJSON(item); err != nil {
				return err
			}
		}
		return nil
	}
}

// errorLine is the JSON form of an error.
type errorLine struct {
	Error errorBody `json:"error"`
}

type errorBody struct {
	Code        string `json:"code"`
	Message     string `json:"message"`
	Field       string `json:"field,omitempty"`
	SafeToRetry bool   `json:"safeToRetry"`
	Ambiguous   bool   `json:"ambiguous"`
	RetryAfter  string `json:"retryAfter,omitempty"`
}

// printError writes an error as one line.
func (p *program) printError(err error) {
	body := p.describe(err, p.servers...)
	if p.json {
		// If standard error is gone there is nobody left to tell.
		_ = json.NewEncoder(p.streams.Err).Encode(errorLine{body}) //nolint:errchkjson // as said above
		return
	}
	fmt.Fprintf(p.streams.Err, "lockctl: %s: %s%s\n", body.Code, body.Message, p.hint(body))
}

// describe says what an error of one of the servers is. Only the service's own errors have a code of the closed set.
func (p *program) describe(err error, servers ...string) errorBody {
	body := errorBody{Code: "ERROR", Message: explain(err, servers)}
	var known *lock.Error
	switch {
	case errors.As(err, new(usageError)):
		body.Code = "USAGE"
	case errors.As(err, new(signalError)):
		body.Code = "INTERRUPTED"
	case errors.As(err, &known):
		body.Code = string(known.Code)
		body.Field = known.Field
		body.SafeToRetry = known.SafeToRetry()
		body.Ambiguous = known.Ambiguous() && !p.reads && !noHandshake(known)
		if known.RetryAfter > 0 {
			body.RetryAfter = known.RetryAfter.String()
		}
	}
	// A message of many lines, say from a library, is still one line here.
	body.Message = strings.Join(strings.Fields(body.Message), " ")
	return body
}

// hint tells a person what an error's class means for the next step.
func (p *program) hint(body errorBody) string {
	switch {
	case body.Code == string(lock.CodeHeld):
		return ""
	case body.SafeToRetry && body.RetryAfter != "":
		return " (may be tried again after " + body.RetryAfter + ")"
	case body.SafeToRetry && body.Ambiguous:
		return " (may be tried again; this try may have been carried out)"
	case body.SafeToRetry:
		return " (may be tried again)"
	case body.Code == "USAGE":
		return " (see " + p.path + " --help)"
	}
	return ""
}

// when gives a moment for people.
func when(t *timestamppb.Timestamp) string {
	if t == nil {
		return "-"
	}
	return t.AsTime().UTC().Format(time.RFC3339)
}

// long gives a duration for people; absent is "-".
func long(d *durationpb.Duration) string {
	if d == nil {
		return "-"
	}
	return d.AsDuration().Round(time.Millisecond).String()
}

// pairs gives metadata for people, by name.
func pairs(m map[string]string) string {
	if len(m) == 0 {
		return "-"
	}
	var all []string
	for _, name := range slices.Sorted(maps.Keys(m)) {
		all = append(all, name+"="+m[name])
	}
	return strings.Join(all, ",")
}
