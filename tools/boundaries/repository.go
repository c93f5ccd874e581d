package boundaries

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// prefix begins every module path of the repository.
const prefix = "github.com/fencelock/fencelock/"

// source is one file; Path is slash-separated and relative to the root.
type source struct {
	Path string
	Text []byte
}

// module is what a go.mod says, and where it is.
type module struct {
	// Dir is relative to the root.
	Dir     string
	Module  struct{ Path string }
	Require []struct{ Path string }
	Replace []struct{ Old, New struct{ Path string } }
}

// name is the module's path without the common prefix.
func (m module) name() string { return strings.TrimPrefix(m.Module.Path, prefix) }

// findRoot walks up to the folder of go.work.
func findRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find working folder: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("find go.work: no folder above has it")
		}
		dir = parent
	}
}

// readSources returns all files under root with the extension.
func readSources(root, extension string) ([]source, error) {
	var sources []source
	err := walk(root, func(path, name string) error {
		if filepath.Ext(name) != extension {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("read source: %w", err)
		}
		sources = append(sources, source{Path: relative(root, path), Text: text})
		return nil
	})
	return sources, err
}

// walk visits the files that belong to the repository.
func walk(root string, visit func(path, name string) error) error {
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			switch entry.Name() {
			case ".git", "bin", "testdata", "fencelock-data":
				return fs.SkipDir
			}
			return nil
		}
		return visit(path, entry.Name())
	})
	if err != nil {
		return fmt.Errorf("walk repository: %w", err)
	}
	return nil
}

func relative(root, path string) string {
	rel, err := filepath.Rel(root, path)
	if err != nil {
		return path
	}
	return filepath.ToSlash(rel)
}

// readModules returns all modules under root, whether go.work has them or not.
func readModules(root string) ([]module, error) {
	var modules []module
	err := walk(root, func(path, name string) error {
		if name != "go.mod" {
			return nil
		}
		m := module{Dir: relative(root, filepath.Dir(path))}
		out, err := goCommand(root, "mod", "edit", "-json", path)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(out, &m); err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}
		modules = append(modules, m)
		return nil
	})
	return modules, err
}

// readWorkspace returns the folders that go.work uses, relative to the root.
func readWorkspace(root string) ([]string, error) {
	out, err := goCommand(root, "work", "edit", "-json")
	if err != nil {
		return nil, err
	}
	var work struct{ Use []struct{ DiskPath string } }
	if err := json.Unmarshal(out, &work); err != nil {
		return nil, fmt.Errorf("read go.work: %w", err)
	}
	var dirs []string
	for _, use := range work.Use {
		dirs = append(dirs, strings.TrimPrefix(use.DiskPath, "./"))
	}
	return dirs, nil
}

// listed is a package as `go list -deps` tells it.
type listed struct {
	ImportPath   string
	Standard     bool
	DepOnly      bool
	Imports      []string
	TestImports  []string
	XTestImports []string
}

// readPackages lists a module's packages and all they depend on, as the module is outside the
// workspace.
func readPackages(root string, m module) ([]listed, error) {
	out, err := goCommand(filepath.Join(root, m.Dir), "list", "-deps",
		"-json=ImportPath,Standard,DepOnly,Imports,TestImports,XTestImports", "./...")
	if err != nil {
		return nil, err
	}
	var packages []listed
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			return packages, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read packages of %s: %w", m.Dir, err)
		}
		packages = append(packages, p)
	}
}

func goCommand(dir string, args ...string) ([]byte, error) {
	command := exec.Command("go", args...)
	command.Dir = dir
	workspace := "off"
	if args[0] == "work" {
		workspace = ""
	}
	command.Env = append(os.Environ(), "GOWORK="+workspace)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s in %s: %w\n%s", strings.Join(args, " "), dir, err, stderr.Bytes())
	}
	return out, nil
}
