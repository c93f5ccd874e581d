package etcd_test

import (
	"encoding/json"
	"flag"
	"go/ast"
	"go/types"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/contracts/parity/document"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

var update = flag.Bool("update", false, "write the checked tables of docs/contracts")

func table(name string) document.Table {
	return document.Table{File: "../../docs/contracts/C1-database-schemas.md", Name: name, Update: *update}
}

// inspectSource visits all that the adapter's files declare.
func inspectSource(t *testing.T, visit func(ast.Node) bool) {
	t.Helper()
	files, err := document.Files(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		ast.Inspect(file, visit)
	}
}

// TestKeysDocument: the document has every folder of the source, and each stands for keys that are really written.
func TestKeysDocument(t *testing.T) {
	t.Parallel()
	var folders []string
	inspectSource(t, func(node ast.Node) bool {
		spec, ok := node.(*ast.ValueSpec)
		if ok && len(spec.Values) == 1 && (strings.HasSuffix(spec.Names[0].Name, "Folder") || spec.Names[0].Name == "metaKey") {
			folders = append(folders, document.Text(spec.Values[0]))
		}
		return true
	})
	slices.Sort(folders)
	found := written(t)
	var rows [][]string
	for _, folder := range folders {
		for _, form := range slices.Sorted(maps.Keys(found)) {
			if strings.HasPrefix(form, folder) {
				rows = append(rows, []string{document.Code(form), document.Prose, found[form].lease, document.Prose})
				delete(found, form)
			}
		}
		if n := len(rows); n == 0 || !strings.HasPrefix(rows[n-1][0], "`"+folder) {
			t.Errorf("nothing was written under %s", folder)
		}
	}
	for form := range found {
		t.Errorf("%s is written, and under no folder of the source", form)
	}
	table("etcd-keys").Check(t, rows)
}

// TestRecordsDocument: the document has every field of every record in the source.
func TestRecordsDocument(t *testing.T) {
	t.Parallel()
	var rows [][]string
	inspectSource(t, func(node ast.Node) bool {
		spec, ok := node.(*ast.TypeSpec)
		if !ok || !strings.HasSuffix(spec.Name.Name, "Record") {
			return true
		}
		for _, field := range spec.Type.(*ast.StructType).Fields.List {
			name, option, _ := strings.Cut(reflect.StructTag(strings.Trim(field.Tag.Value, "`")).Get("json"), ",")
			always := "always"
			if option == "omitempty" {
				always = "unless empty or 0"
			}
			rows = append(rows, []string{
				document.Code(recordName(spec.Name.Name) + "." + name), document.Code(types.ExprString(field.Type)), always, document.Prose,
			})
		}
		return false
	})
	table("etcd-records").Check(t, rows)
}

func recordName(typeName string) string { return strings.TrimSuffix(typeName, "Record") }

// shape is what stands at keys of one form.
type shape struct {
	lease string
	// fields are the names in the JSON of the values.
	fields []string
}

// written does all that writes and returns what stands in etcd afterwards, by the form of its key.
func written(t *testing.T) map[string]shape {
	t.Helper()
	p, ctx := newPlace(t), t.Context()
	session := p.open(time.Minute)
	p.grab("revoked", session)
	if _, err := p.Revoke(ctx, port.RevokeRequest{Key: key(t, "revoked"), Operator: "ops", Reason: "worker is stuck"}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.RaiseFloor(ctx, port.FloorRequest{Above: 1, Operator: "ops", Reason: "restored a snapshot"}); err != nil {
		t.Fatal(err)
	}
	leased := request(key(t, "leased"), session.ID)
	leased.Lease = time.Minute
	p.grabWith(leased)
	resp, err := p.raw.Get(ctx, p.prefix, clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]shape{}
	for _, kv := range resp.Kvs {
		var fields map[string]any
		value := strings.TrimLeft(string(kv.GetValue()), "cs") // the kind of a grant
		if err := json.Unmarshal([]byte(value), &fields); err != nil {
			t.Errorf("%s: %v", kv.GetKey(), err)
		}
		s := shape{lease: "its own", fields: slices.Sorted(maps.Keys(fields))}
		switch clientv3.LeaseID(kv.GetLease()) {
		case clientv3.NoLease:
			s.lease = "–"
		case leaseOf(t, p.raw, p.prefix, session.ID):
			s.lease = "the session's"
		}
		found[formOf(strings.TrimPrefix(string(kv.GetKey()), p.prefix))] = s
	}
	return found
}

// formOf puts words in the place of what differs from key to key.
func formOf(key string) string {
	folder, rest, nested := strings.Cut(key, "/")
	namespace, name, _ := strings.Cut(rest, "/")
	hexDigits := func(text string, n int) bool { return len(text) == n && strings.Trim(text, "0123456789abcdef") == "" }
	switch {
	case !nested:
		return key
	case hexDigits(rest, 32):
		return folder + "/HASH"
	case namespace == "" && hexDigits(name, 16):
		return folder + "//ID"
	case namespace == lock.DefaultNamespace && hexDigits(name, 16):
		return folder + "/NAMESPACE/ID"
	case namespace == lock.DefaultNamespace && name != "":
		return folder + "/NAMESPACE/KEY"
	}
	return key
}

// TestRecordsStandWhereTheDocumentSays: the values at keys of a form have the fields of the record that the document
// names for it, and no others.
func TestRecordsStandWhereTheDocumentSays(t *testing.T) {
	t.Parallel()
	found := written(t)
	for _, row := range table("etcd-keys").Rows(t) {
		record := strings.Trim(row[1], "`")
		has := found[strings.Trim(row[0], "`")].fields
		var known []string
		for _, r := range table("etcd-records").Rows(t) {
			field, ours := strings.CutPrefix(strings.Trim(r[0], "`"), record+".")
			if !ours {
				continue
			}
			known = append(known, field)
			if r[2] == "always" && !slices.Contains(has, field) {
				t.Errorf("%s has no field %s, the document says always", row[0], field)
			}
		}
		for _, field := range has {
			if !slices.Contains(known, field) {
				t.Errorf("%s has the field %s, which is none of the record %s", row[0], field, row[1])
			}
		}
	}
}
