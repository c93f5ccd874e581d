package rpc_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// grpcFrame is one length-prefixed message of gRPC.
func grpcFrame(flag byte, message []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{flag}, uint32(len(message))), message...)
}

func grpcField(n protowire.Number, text string) []byte {
	return protowire.AppendString(protowire.AppendTag(nil, n, protowire.BytesType), text)
}

// TestRawGRPCInputIsRefusedAndChangesNothing holds what no generated client sends, over gRPC.
func TestRawGRPCInputIsRefusedAndChangesNothing(t *testing.T) {
	t.Parallel()
	const invalid, late, exhausted, unimplemented = "3", "4", "8", "12"
	f := newFixture(t)
	session := f.plain(t).open(t)
	good := append(append(grpcField(2, "free"), grpcField(3, session)...), grpcField(4, "r1")...)
	corrupt := zipped(good)
	corrupt[len(corrupt)/2] ^= 0xff
	truncated := protowire.AppendVarint(protowire.AppendTag(nil, 2, protowire.BytesType), 100)
	notUTF8 := append(append(grpcField(2, "a\xff"), grpcField(3, session)...), grpcField(4, "r1")...)
	rows := map[string]struct {
		header [2]string
		body   []byte
		status string
	}{
		"row 4: invalid UTF-8":      {body: grpcFrame(0, notUTF8), status: invalid},
		"row 12: 11 digits":         {header: [2]string{"Grpc-Timeout", "12345678901m"}, body: grpcFrame(0, good), status: invalid},
		"row 12: negative timeout":  {header: [2]string{"Grpc-Timeout", "-5m"}, body: grpcFrame(0, good), status: invalid},
		"row 12: timeout in words":  {header: [2]string{"Grpc-Timeout", "soon"}, body: grpcFrame(0, good), status: invalid},
		"row 13: deadline is past":  {header: [2]string{"Grpc-Timeout", "0m"}, body: grpcFrame(0, good), status: late},
		"row 25: body too large":    {body: grpcFrame(0, grpcField(2, strings.Repeat("k", 64<<10+1))), status: exhausted},
		"row 26: gzip bomb":         {header: [2]string{"Grpc-Encoding", "gzip"}, body: grpcFrame(1, zipped(make([]byte, 10<<20))), status: exhausted},
		"row 27: corrupt gzip":      {header: [2]string{"Grpc-Encoding", "gzip"}, body: grpcFrame(1, corrupt), status: invalid},
		"row 28: unknown encoding":  {header: [2]string{"Grpc-Encoding", "br"}, body: grpcFrame(1, good), status: unimplemented},
		"row 29: truncated message": {body: grpcFrame(0, truncated), status: invalid},
	}
	for name, r := range rows {
		t.Run(name, func(t *testing.T) {
			before := f.snapshot(t)
			if status := grpcStatus(t, f, r.header, r.body); status != r.status {
				t.Errorf("grpc-status = %q, want %q", status, r.status)
			}
			if f.snapshot(t) != before {
				t.Error("the store has changed")
			}
		})
	}
}

// grpcStatus sends raw bytes to Acquire and returns the status of the answer.
func grpcStatus(t *testing.T, f *fixture, header [2]string, body []byte) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.url()+"/fencelock.v1.LockService/Acquire", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/grpc")
	req.Header.Set("TE", "trailers")
	if header[0] != "" {
		req.Header.Set(header[0], header[1])
	}
	resp, err := httpClient(t, true).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatal(err)
	}
	if status := resp.Trailer.Get("Grpc-Status"); status != "" {
		return status
	}
	return resp.Header.Get("Grpc-Status")
}
