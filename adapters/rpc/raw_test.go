package rpc_test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/fencelock/fencelock/contracts/api/fencelock/v1/fencelockv1connect"
)

func contains(text, part string) bool { return strings.Contains(text, part) }

// raw is one HTTP request that no well-behaved client sends.
type raw struct {
	name   string
	method string // POST if empty
	path   string // Acquire if empty
	header map[string]string
	body   []byte
	status int
	code   string // Connect's code in the JSON answer; empty where the answer is no Connect error
}

// TestRawInputIsRefusedAndChangesNothing sends what a typed client cannot.
func TestRawInputIsRefusedAndChangesNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c := f.plain(t)
	session := c.open(t)
	c.acquire(t, session, heldKey, "r0")
	hc := httpClient(t, false)
	var table []raw
	for _, part := range [][]raw{rawBodies(session), rawEncodings(session), rawEnvelopes(session)} {
		table = append(table, part...)
	}
	for _, r := range table {
		t.Run(r.name, func(t *testing.T) {
			before := f.snapshot(t)
			status, body := send(t, hc, f.url(), r)
			if status != r.status {
				t.Errorf("status %d, want %d: %s", status, r.status, body)
			}
			if r.code != "" && codeOf(t, body) != r.code {
				t.Errorf("body %s, want code %s", body, r.code)
			}
			if after := f.snapshot(t); after != before {
				t.Errorf("the store changed:\n%s\n%s", before, after)
			}
			c.acquire(t, session, heldKey, "r0") // the server goes on, and the grant stands
		})
	}
}

func send(t *testing.T, hc *http.Client, url string, r raw) (status int, body string) {
	t.Helper()
	method, path := r.method, r.path
	if method == "" {
		method = http.MethodPost
	}
	if path == "" {
		path = fencelockv1connect.LockServiceAcquireProcedure
	}
	request, err := http.NewRequestWithContext(t.Context(), method, url+path, bytes.NewReader(r.body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	for name, value := range r.header {
		request.Header.Set(name, value)
	}
	response, err := hc.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(answer)
}

func codeOf(t *testing.T, body string) string {
	t.Helper()
	var answer struct{ Code string }
	if err := json.Unmarshal([]byte(body), &answer); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	return answer.Code
}

func good(session string) []byte {
	return []byte(`{"key":"free","sessionId":"` + session + `","requestId":"r1"}`)
}

func rawBodies(session string) []raw {
	badText := []byte(`{"key":"a` + "\xff" + `","sessionId":"` + session + `","requestId":"r1"}`)
	var badField []byte
	badField = protowire.AppendTag(badField, 2, protowire.BytesType)
	badField = protowire.AppendBytes(badField, []byte("a\xff"))
	var truncated []byte
	truncated = protowire.AppendTag(truncated, 2, protowire.BytesType)
	truncated = protowire.AppendVarint(truncated, 100)
	nested := strings.Repeat(`{"a":`, 10000) + "1" + strings.Repeat("}", 10000)
	proto := map[string]string{"Content-Type": "application/proto"}
	bad := func(name string, body string) raw {
		return raw{name: name, body: []byte(body), status: 400, code: "invalid_argument"}
	}
	return []raw{
		{name: "row 4 key that is no UTF-8, JSON", body: badText, status: 400, code: "invalid_argument"},
		{name: "row 4 key that is no UTF-8, binary", header: proto, body: badField, status: 400, code: "invalid_argument"},
		{name: "row 29 truncated protobuf", header: proto, body: truncated, status: 400, code: "invalid_argument"},
		bad("row 29 JSON with trailing text", string(good(session))+" more"),
		bad("row 29 JSON nested 10,000 deep", nested),
		bad("row 29 empty body", ""),
		bad("row 29 array instead of an object", "[]"),
		bad("row 30 unknown JSON field", `{"key":"free","sessionId":"`+session+`","requestId":"r1","ttll":"5s"}`),
		bad("row 30 duplicate JSON field", `{"key":"free","key":"other","sessionId":"`+session+`","requestId":"r1"}`),
		bad("row 30 duplicate field under both names", `{"key":"free","sessionId":"`+session+`","session_id":"`+session+`","requestId":"r1"}`),
		bad("row 9 duration past its range", `{"key":"free","sessionId":"`+session+`","requestId":"r1","wait":"99999999999999999999s"}`),
		{
			name: "row 30 number overflow in a string", path: fencelockv1connect.LockServiceReleaseProcedure,
			body:   []byte(`{"key":"held","sessionId":"` + session + `","token":"9223372036854775808"}`),
			status: 400, code: "invalid_argument",
		},
		{
			name: "row 30 number overflow", path: fencelockv1connect.LockServiceReleaseProcedure,
			body:   []byte(`{"key":"held","sessionId":"` + session + `","token":1e300}`),
			status: 400, code: "invalid_argument",
		},
	}
}

// zipped compresses in memory, where writing cannot fail.
func zipped(data []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(data)
	_ = w.Close()
	return b.Bytes()
}

func rawEncodings(session string) []raw {
	corrupt := zipped(good(session))
	corrupt[len(corrupt)/2] ^= 0xff
	withGzip := map[string]string{"Content-Encoding": "gzip"}
	return []raw{
		{name: "row 25 body over the limit", body: bytes.Repeat([]byte("x"), 64<<10+1), status: 429, code: "resource_exhausted"},
		{name: "row 26 gzip bomb", header: withGzip, body: zipped(make([]byte, 10<<20)), status: 429, code: "resource_exhausted"},
		{name: "row 27 corrupt gzip", header: withGzip, body: corrupt, status: 400, code: "invalid_argument"},
		{name: "row 28 brotli", header: map[string]string{"Content-Encoding": "br"}, body: good(session), status: 501, code: "unimplemented"},
	}
}

func rawEnvelopes(session string) []raw {
	timeout := func(name, value, code string, status int) raw {
		return raw{name: name, header: map[string]string{"Connect-Timeout-Ms": value}, body: good(session), status: status, code: code}
	}
	frame := append(binary.BigEndian.AppendUint32([]byte{0}, 1<<30), "short"...)
	return []raw{
		timeout("row 12 timeout of 11 digits", "12345678901", "invalid_argument", 400),
		timeout("row 12 negative timeout", "-5", "invalid_argument", 400),
		timeout("row 12 timeout in words", "soon", "invalid_argument", 400),
		timeout("row 13 timeout of nothing", "0", "deadline_exceeded", 504),
		{name: "row 31 text", header: map[string]string{"Content-Type": "text/plain"}, body: good(session), status: 415},
		{name: "row 32 GET", method: http.MethodGet, status: 405},
		{name: "row 32 DELETE", method: http.MethodDelete, status: 405},
		{name: "row 33 wrong protocol version", header: map[string]string{"Connect-Protocol-Version": "2"}, body: good(session), status: 400, code: "invalid_argument"},
		{name: "row 34 unknown method", path: "/fencelock.v1.LockService/Steal", body: good(session), status: 404},
		{name: "row 34 unknown service", path: "/fencelock.v2.LockService/Acquire", body: good(session), status: 404},
		{name: "row 34 unknown method over gRPC", path: "/fencelock.v1.LockService/Steal", header: map[string]string{"Content-Type": "application/grpc"}, body: frame, status: 404},
		{name: "stream method over HTTP/1.1", path: fencelockv1connect.SessionServiceAttachProcedure, header: map[string]string{"Content-Type": "application/connect+json"}, status: 505},
	}
}

// TestRow33TheProtocolHeaderIsOptional: a plain POST is enough.
func TestRow33TheProtocolHeaderIsOptional(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	session := f.plain(t).open(t)
	status, body := send(t, httpClient(t, false), f.url(), raw{body: good(session)})
	if status != http.StatusOK || !contains(body, `"token":"1"`) {
		t.Errorf("%d %s", status, body)
	}
	status, body = send(t, httpClient(t, false), f.url(), raw{
		path: fencelockv1connect.LockServiceReleaseProcedure,
		body: []byte(`{"key":"free","sessionId":"` + session + `","token":"77"}`),
	})
	if status != http.StatusOK || !contains(body, `"released":false`) {
		t.Errorf("false must be said: %d %s", status, body)
	}
}

// TestRow26MemoryStaysFlat: forty bombs of 10 MiB each must not be inflated past the limit.
func TestRow26MemoryStaysFlat(t *testing.T) { //nolint:paralleltest // measures the whole process
	f := newFixture(t)
	hc := httpClient(t, false)
	bomb := rawEncodings("")[1]
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 40 {
		if status, body := send(t, hc, f.url(), bomb); status != bomb.status {
			t.Fatalf("%d %s", status, body)
		}
	}
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 100<<20 {
		t.Errorf("%d MiB were allocated for bombs of 400 MiB in all", grown>>20)
	}
}
