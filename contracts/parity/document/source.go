package document

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Constant is a constant with a text as its value.
type Constant struct{ Name, Value string }

// Constants returns the constants of a type that a package declares, in the order of files and lines.
// It reads the source in dir, since a running program cannot list them; none is an error.
func Constants(dir, typeName string) ([]Constant, error) {
	files, err := Files(dir)
	if err != nil {
		return nil, err
	}
	var found []Constant
	for _, file := range files {
		ast.Inspect(file, func(node ast.Node) bool {
			spec, ok := node.(*ast.ValueSpec)
			if !ok {
				return true
			}
			if kind, ok := spec.Type.(*ast.Ident); !ok || kind.Name != typeName {
				return false
			}
			for i, name := range spec.Names {
				if i < len(spec.Values) {
					found = append(found, Constant{Name: name.Name, Value: Text(spec.Values[i])})
				}
			}
			return false
		})
	}
	if found == nil {
		return nil, fmt.Errorf("read %s: it has no constants of type %s", dir, typeName)
	}
	return found, nil
}

// Text returns the value of a text in quotes, or "" for any other expression.
func Text(e ast.Expr) string {
	literal, ok := e.(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return ""
	}
	text, err := strconv.Unquote(literal.Value)
	if err != nil {
		return ""
	}
	return text
}

// Files parses the Go files of a folder, tests excepted.
func Files(dir string) ([]*ast.File, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read package: %w", err)
	}
	var files []*ast.File
	for _, entry := range entries {
		name := entry.Name()
		if filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, name), nil, parser.ParseComments)
		if err != nil {
			return nil, fmt.Errorf("read package: %w", err)
		}
		files = append(files, file)
	}
	return files, nil
}
