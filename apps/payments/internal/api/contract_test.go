package api

import (
	"context"
	"flag"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/fencelock/fencelock/apps/payments/internal/account"
	"github.com/fencelock/fencelock/apps/payments/internal/rail"
	"github.com/fencelock/fencelock/apps/payments/internal/refusal"
	"github.com/fencelock/fencelock/apps/payments/internal/telemetry"
	paymentsv1 "github.com/fencelock/fencelock/contracts/api/fencelock/payments/v1"
	"github.com/fencelock/fencelock/contracts/parity/document"
)

var update = flag.Bool("update", false, "write the checked tables of docs/contracts")

func table(name string) document.Table {
	return document.Table{File: "../../../../docs/contracts/C3-rpc.md", Name: name, Update: *update}
}

// files are the descriptors of the wire contract.
func files() []protoreflect.FileDescriptor {
	return []protoreflect.FileDescriptor{
		paymentsv1.File_fencelock_payments_v1_payment_proto, paymentsv1.File_fencelock_payments_v1_rail_proto,
	}
}

func TestTheDocumentKnowsEveryFile(t *testing.T) {
	t.Parallel()
	if n := protoregistry.GlobalFiles.NumFilesByPackage("fencelock.payments.v1"); n != len(files()) {
		t.Errorf("the package has %d files, the tests of the document read %d", n, len(files()))
	}
}

// TestMethodsDocument: the document has every method, the fields of its request and answer, and whether it is made under a lock.
func TestMethodsDocument(t *testing.T) {
	t.Parallel()
	open := unguarded()
	var rows [][]string
	for _, file := range files() {
		for service := range all[protoreflect.ServiceDescriptor](file.Services()) {
			for m := range all[protoreflect.MethodDescriptor](service.Methods()) {
				token := "yes"
				if slices.Contains(open, "/"+string(service.FullName())+"/"+string(m.Name())) {
					token = "–"
				}
				rows = append(rows, []string{
					document.Code(string(service.Name()) + "." + string(m.Name())), token, fields(m.Input()), fields(m.Output()), document.Prose,
				})
			}
		}
	}
	table("payments-methods").Check(t, rows)
}

// TestMessagesDocument: the document has every message that is no request or answer of a method.
func TestMessagesDocument(t *testing.T) {
	t.Parallel()
	direct := map[protoreflect.FullName]bool{}
	var rows [][]string
	for _, file := range files() {
		for service := range all[protoreflect.ServiceDescriptor](file.Services()) {
			for m := range all[protoreflect.MethodDescriptor](service.Methods()) {
				direct[m.Input().FullName()], direct[m.Output().FullName()] = true, true
			}
		}
		for m := range all[protoreflect.MessageDescriptor](file.Messages()) {
			if !direct[m.FullName()] {
				rows = append(rows, []string{document.Code(string(m.Name())), fields(m), document.Prose})
			}
		}
		for e := range all[protoreflect.EnumDescriptor](file.Enums()) {
			var values []string
			for v := range all[protoreflect.EnumValueDescriptor](e.Values()) {
				values = append(values, string(v.Name()))
			}
			rows = append(rows, []string{document.Code(string(e.Name())), document.Code(strings.Join(values, ", ")), document.Prose})
		}
	}
	table("payments-messages").Check(t, rows)
}

// TestErrorCodesDocument: the document has the one table from refusals to the wire, and the wire has no code beside it.
func TestErrorCodesDocument(t *testing.T) {
	t.Parallel()
	known, err := document.Constants("../refusal", "Code")
	if err != nil {
		t.Fatal(err)
	}
	sent := map[paymentsv1.ErrorCode]bool{paymentsv1.ErrorCode_ERROR_CODE_UNSPECIFIED: true}
	var rows [][]string
	for _, c := range known {
		wire, status := wireCodes(refusal.Code(c.Value))
		sent[wire] = true
		rows = append(rows, []string{document.Code(c.Value), document.Code(wire.String()), document.Code(status.String()), document.Prose})
	}
	table("payments-error-codes").Check(t, rows)
	for number, name := range paymentsv1.ErrorCode_name {
		if !sent[paymentsv1.ErrorCode(number)] {
			t.Errorf("no refusal becomes %s", name)
		}
	}
}

// TestTransitionsDocument: the document has the list of steps.
func TestTransitionsDocument(t *testing.T) {
	t.Parallel()
	var rows [][]string
	for _, s := range account.Transitions() {
		rows = append(rows, []string{document.Code(string(s.From) + " > " + string(s.To)), document.Code(string(s.By)), document.Prose})
	}
	table("payments-transitions").Check(t, rows)
}

// TestTheWireHasEachStateAndOutcome: names of the domain and of the wire are the same.
func TestTheWireHasEachStateAndOutcome(t *testing.T) {
	t.Parallel()
	for _, state := range account.States() {
		if wire := stateToWire(state); wire == 0 || stateFromWire(wire) != state {
			t.Errorf("%s becomes %s", state, wire)
		}
	}
	if n := len(paymentsv1.PayoutState_name); n != len(account.States())+1 {
		t.Errorf("the wire has %d states", n)
	}
	for outcome, want := range map[rail.Outcome]paymentsv1.SubmissionOutcome{
		rail.Unknown: 0, rail.Acked: paymentsv1.SubmissionOutcome_SUBMISSION_OUTCOME_ACKED, rail.Rejected: paymentsv1.SubmissionOutcome_SUBMISSION_OUTCOME_REJECTED,
	} {
		if got := submissionToWire(rail.Submission{Outcome: outcome}).GetOutcome(); got != want {
			t.Errorf("%q becomes %s", outcome, got)
		}
	}
	for _, none := range []paymentsv1.PayoutState{0, 99, -1} {
		if slices.Contains(account.States(), stateFromWire(none)) {
			t.Errorf("%d becomes %s", none, stateFromWire(none))
		}
	}
}

// started notes the spans that were begun.
type started struct {
	sdktrace.SpanProcessor

	mu    sync.Mutex
	spans [][]string
}

// OnStart implements sdktrace.SpanProcessor.
func (s *started) OnStart(_ context.Context, span sdktrace.ReadWriteSpan) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for _, a := range span.Attributes() {
		names = append(names, document.Code(string(a.Key)))
	}
	s.spans = append(s.spans, []string{document.Code(span.Name()), strings.Join(names, ", "), document.Prose})
}

// OnEnd implements sdktrace.SpanProcessor.
func (s *started) OnEnd(sdktrace.ReadOnlySpan) {}

// Shutdown implements sdktrace.SpanProcessor.
func (s *started) Shutdown(context.Context) error { return nil }

// TestSpansDocument calls every method that is made under a lock, and compares the spans that begin with the document.
func TestSpansDocument(t *testing.T) {
	t.Parallel()
	processor := &started{}
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(processor)).Tracer("test")
	// Nothing is behind them: without a token each ends before it gets there.
	watch, err := telemetry.NewPayment(prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	p := &payments{store: account.New(nil, true), watch: watch, tracer: tracer}
	s := &submissions{proxy: rail.NewProxy(nil, nil, 0, nil), tracer: tracer}
	for name, call := range map[string]func() error{
		"claim": func() error {
			_, err := p.Claim(t.Context(), connect.NewRequest(&paymentsv1.ClaimRequest{}))
			return err
		},
		"advance": func() error {
			_, err := p.Advance(t.Context(), connect.NewRequest(&paymentsv1.AdvanceRequest{}))
			return err
		},
		"post": func() error { _, err := p.Post(t.Context(), connect.NewRequest(&paymentsv1.PostRequest{})); return err },
		"submit": func() error {
			_, err := s.Submit(t.Context(), connect.NewRequest(&paymentsv1.SubmitRequest{}))
			return err
		},
		"lookup": func() error {
			_, err := s.Lookup(t.Context(), connect.NewRequest(&paymentsv1.LookupRequest{}))
			return err
		},
	} {
		if call() == nil {
			t.Errorf("%s without a token was made", name)
		}
	}
	slices.SortFunc(processor.spans, func(a, b []string) int { return strings.Compare(a[0], b[0]) })
	document.Table{File: "../../../../docs/contracts/C4-observability.md", Name: "payments-spans", Update: *update}.Check(t, processor.spans)
}

// list is what descriptors have many of.
type list[D any] interface {
	Len() int
	Get(int) D
}

func all[D any](l list[D]) func(yield func(D) bool) {
	return func(yield func(D) bool) {
		for i := range l.Len() {
			if !yield(l.Get(i)) {
				return
			}
		}
	}
}

// fields lists the fields of a message; texts show no type.
func fields(m protoreflect.MessageDescriptor) string {
	var parts []string
	for f := range all[protoreflect.FieldDescriptor](m.Fields()) {
		kind := f.Kind().String()
		if m := f.Message(); m != nil {
			kind = string(m.Name())
		}
		if e := f.Enum(); e != nil {
			kind = string(e.Name())
		}
		if f.IsList() {
			kind = "list of " + kind
		}
		parts = append(parts, strings.TrimSuffix(string(f.Name())+" "+kind, " string"))
	}
	return document.Code(strings.Join(parts, ", "))
}
