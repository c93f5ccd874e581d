package rpc

import (
	"flag"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	fencelockv1 "github.com/fencelock/fencelock/contracts/api/fencelock/v1"
	"github.com/fencelock/fencelock/contracts/parity/document"
	"github.com/fencelock/fencelock/core/lock"
)

var update = flag.Bool("update", false, "write the checked tables of docs/contracts")

func table(name string) document.Table {
	return document.Table{File: "../../docs/contracts/C3-rpc.md", Name: name, Update: *update}
}

// files are the descriptors of the wire contract, in the order of their names.
func files() []protoreflect.FileDescriptor {
	return []protoreflect.FileDescriptor{
		fencelockv1.File_fencelock_v1_session_proto, fencelockv1.File_fencelock_v1_lock_proto,
		fencelockv1.File_fencelock_v1_admin_proto, fencelockv1.File_fencelock_v1_error_proto,
	}
}

func TestTheDocumentKnowsEveryFile(t *testing.T) {
	t.Parallel()
	if n := protoregistry.GlobalFiles.NumFilesByPackage("fencelock.v1"); n != len(files()) {
		t.Errorf("the package has %d files, the tests of the document read %d", n, len(files()))
	}
}

// TestMethodsDocument: the document has every method, and the fields of its request and answer.
func TestMethodsDocument(t *testing.T) {
	t.Parallel()
	var rows [][]string
	for _, file := range files() {
		for service := range all[protoreflect.ServiceDescriptor](file.Services()) {
			for m := range all[protoreflect.MethodDescriptor](service.Methods()) {
				rows = append(rows, []string{
					document.Code(string(service.Name()) + "." + string(m.Name())),
					kind(m), fields(m.Input()), fields(m.Output()), document.Prose,
				})
			}
		}
	}
	table("methods").Check(t, rows)
}

// TestMessagesDocument: the document has every message that is no request or answer of a method.
func TestMessagesDocument(t *testing.T) {
	t.Parallel()
	direct := map[protoreflect.FullName]bool{}
	for _, file := range files() {
		for service := range all[protoreflect.ServiceDescriptor](file.Services()) {
			for m := range all[protoreflect.MethodDescriptor](service.Methods()) {
				direct[m.Input().FullName()], direct[m.Output().FullName()] = true, true
			}
		}
	}
	var rows [][]string
	for _, file := range files() {
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
	table("messages").Check(t, rows)
}

// TestErrorCodesDocument: the document has the one table from the closed set to the wire.
func TestErrorCodesDocument(t *testing.T) {
	t.Parallel()
	closed, err := document.Constants("../../core/lock", "Code")
	if err != nil {
		t.Fatal(err)
	}
	sent := map[fencelockv1.ErrorCode]bool{fencelockv1.ErrorCode_ERROR_CODE_UNSPECIFIED: true}
	var rows [][]string
	for _, c := range closed {
		row := []string{document.Code(c.Value), "–", "–", document.Prose}
		if wire, status, ok := codes(lock.Code(c.Value)); ok {
			sent[wire] = true
			row[1], row[2] = document.Code(wire.String()), document.Code(status.String())
		}
		rows = append(rows, row)
	}
	table("error-codes").Check(t, rows)
	for number, name := range fencelockv1.ErrorCode_name {
		if !sent[fencelockv1.ErrorCode(number)] {
			t.Errorf("no error of the closed set becomes %s", name)
		}
	}
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

func kind(m protoreflect.MethodDescriptor) string {
	switch {
	case m.IsStreamingClient():
		return "stream both ways"
	case m.IsStreamingServer():
		return "stream of answers"
	}
	return "unary"
}

// fields lists the fields of a message; those of a oneof stand together, and texts show no type.
func fields(m protoreflect.MessageDescriptor) string {
	var parts []string
	for f := range all[protoreflect.FieldDescriptor](m.Fields()) {
		part := string(f.Name())
		if kind := typeOf(f); kind != "string" {
			part += " " + kind
		}
		choice := f.ContainingOneof()
		switch {
		case choice == nil || choice.IsSynthetic():
			parts = append(parts, part)
		case choice.Fields().Get(0) == f:
			parts = append(parts, "one of ("+part)
		default:
			parts[len(parts)-1] += " or " + part
		}
		if choice != nil && !choice.IsSynthetic() && choice.Fields().Get(choice.Fields().Len()-1) == f {
			parts[len(parts)-1] += ")"
		}
	}
	return document.Code(strings.Join(parts, ", "))
}

func typeOf(f protoreflect.FieldDescriptor) string {
	switch {
	case f.IsMap():
		return "map of " + typeOf(f.MapKey()) + " to " + typeOf(f.MapValue())
	case f.IsList():
		return "list of " + plainType(f)
	case f.HasOptionalKeyword():
		return "optional " + plainType(f)
	}
	return plainType(f)
}

func plainType(f protoreflect.FieldDescriptor) string {
	switch f.Kind() {
	case protoreflect.MessageKind:
		return string(f.Message().Name())
	case protoreflect.EnumKind:
		return string(f.Enum().Name())
	default:
		return f.Kind().String()
	}
}
