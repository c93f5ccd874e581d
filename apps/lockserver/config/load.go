package config

import (
	"errors"
	"fmt"
	"os"
	"sort"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// envPrefix stands before the names of variables.
const envPrefix = "FENCELOCK_"

// ErrHelp is returned where the arguments ask for help; Usage has the text.
var ErrHelp = pflag.ErrHelp

// Load reads the configuration from args (without the program's name), env (as os.Environ
// gives it) and the file that args name. Every error is one line without passwords, and means that nothing should start.
func Load(args, env []string) (Config, error) {
	c, err := load(args, env)
	if err != nil && !errors.Is(err, ErrHelp) {
		return Config{}, errors.New(Censor(err.Error()))
	}
	return c, err
}

func load(args, env []string) (Config, error) {
	var c Config
	fs := keys(&c)
	flags, file, err := readFlags(args)
	if err != nil {
		return Config{}, err
	}
	if file != "" {
		if err := applyFile(fs, file); err != nil {
			return Config{}, err
		}
	}
	if err := applyEnv(fs, env); err != nil {
		return Config{}, err
	}
	for _, set := range flags {
		if err := apply(fs, set.key, set.value, "flag --"+set.key); err != nil {
			return Config{}, err
		}
	}
	return c, c.validate()
}

// Usage is the text of --help.
func Usage() string { return keys(new(Config)).FlagUsages() }

type setting struct{ key, value string }

// readFlags parses args into settings, to be applied after the other sources.
func readFlags(args []string) (set []setting, file string, err error) {
	fs := keys(new(Config))
	fs.Usage = func() {}
	fs.StringVar(&file, flagConfig, "", "")
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return nil, "", ErrHelp
		}
		return nil, "", oneLine(err)
	}
	if fs.NArg() > 0 {
		return nil, "", fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	fs.Visit(func(f *pflag.Flag) {
		if f.Name != flagConfig {
			set = append(set, setting{f.Name, text(f)})
		}
	})
	return set, file, nil
}

// text is a flag's value in the form in which it can be set again.
func text(f *pflag.Flag) string {
	if list, ok := f.Value.(pflag.SliceValue); ok {
		return strings.Join(list.GetSlice(), ",")
	}
	return f.Value.String()
}

func applyFile(fs *pflag.FlagSet, path string) error {
	data, err := os.ReadFile(path) //nolint:gosec // the operator names the file
	if err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	var tree map[string]any
	if err := yaml.Unmarshal(data, &tree); err != nil {
		return fmt.Errorf("read configuration %s: %w", path, oneLine(err))
	}
	values := make(map[string]string)
	if err := flatten(values, "", tree); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	for _, key := range sortedKeys(values) {
		if err := apply(fs, key, values[key], path); err != nil {
			return err
		}
	}
	return nil
}

// flatten turns nested maps into keys with dots, and lists into text with commas.
func flatten(into map[string]string, prefix string, tree map[string]any) error {
	for name, value := range tree {
		key := prefix + name
		switch v := value.(type) {
		case map[string]any:
			if err := flatten(into, key+".", v); err != nil {
				return err
			}
			continue
		case []any:
			parts := make([]string, len(v))
			for i, part := range v {
				parts[i] = fmt.Sprint(part)
			}
			value = strings.Join(parts, ",")
		case nil:
			value = ""
		}
		if _, twice := into[key]; twice {
			return fmt.Errorf("key %q stands there twice", key)
		}
		into[key] = fmt.Sprint(value)
	}
	return nil
}

// applyEnv sets keys from variables. A variable with our prefix that names no key is an error, unless it
// is of the command line client, or of tests.
func applyEnv(fs *pflag.FlagSet, env []string) error {
	known := make(map[string]string)
	fs.VisitAll(func(f *pflag.Flag) {
		known[Variable(f.Name)] = f.Name
	})
	for _, pair := range env {
		name, value, _ := strings.Cut(pair, "=")
		if key, ok := known[name]; ok {
			if err := apply(fs, key, value, "variable "+name); err != nil {
				return err
			}
			continue
		}
		if strings.HasPrefix(name, envPrefix) && !foreign(name) {
			return fmt.Errorf("variable %s: no such key", name)
		}
	}
	return nil
}

// foreign reports whether a variable with our prefix is meant for another program.
func foreign(name string) bool {
	switch strings.TrimPrefix(name, envPrefix) {
	case "SERVER", "SESSION", "TOKEN", "KEY", "NAMESPACE":
		return true
	}
	return strings.HasPrefix(name, envPrefix+"TEST")
}

// Variable is the name of the environment variable for a key.
func Variable(key string) string {
	return envPrefix + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(key))
}

func apply(fs *pflag.FlagSet, key, value, source string) error {
	f := fs.Lookup(key)
	if f == nil {
		return fmt.Errorf("%s: unknown key %q", source, key)
	}
	if list, ok := f.Value.(pflag.SliceValue); ok {
		_ = list.Replace(splitList(value)) // fails for no list of text
		return nil
	}
	if err := f.Value.Set(value); err != nil {
		return fmt.Errorf("%s: %s: cannot use %q: %w", source, key, value, oneLine(err))
	}
	return nil
}

func splitList(s string) []string {
	var parts []string
	for part := range strings.SplitSeq(s, ",") {
		if part = strings.TrimSpace(part); part != "" {
			parts = append(parts, part)
		}
	}
	return parts
}

// oneLine keeps an error of a library on one line.
func oneLine(err error) error {
	return errors.New(strings.Join(strings.Fields(err.Error()), " "))
}

func sortedKeys(m map[string]string) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}
