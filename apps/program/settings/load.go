package settings

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// flagConfig is the flag that is no key.
const flagConfig = "config"

// ErrHelp is returned where the arguments ask for help.
var ErrHelp = pflag.ErrHelp

// ExtraArgumentError is an argument that is no flag.
type ExtraArgumentError struct{ Argument string }

// Error implements error.
func (e *ExtraArgumentError) Error() string { return fmt.Sprintf("unexpected argument %q", e.Argument) }

// Load sets the keys of fs, in rising order, from the file that args name, from env (as os.Environ gives it) and from args
// (without the program's name and command). Then check judges the values together; it may be nil, and must be no method value of
// a struct, which would judge the values from before. Every error but [ErrHelp] is one line without passwords, and means that
// nothing should start. An argument that is no flag is an [ExtraArgumentError].
func Load(fs *pflag.FlagSet, args, env []string, check func() error) error {
	err := load(fs, args, env)
	if err == nil && check != nil {
		err = check()
	}
	extra, isExtra := errors.AsType[*ExtraArgumentError](err)
	switch {
	case err == nil || errors.Is(err, ErrHelp):
		return err
	case isExtra:
		return &ExtraArgumentError{Argument: Censor(extra.Argument)}
	}
	return errors.New(Line(err))
}

func load(fs *pflag.FlagSet, args, env []string) error {
	if err := sectioned(fs); err != nil {
		return err
	}
	flags, file, err := readFlags(fs, args)
	if err != nil {
		return err
	}
	if file != "" {
		if err := applyFile(fs, file); err != nil {
			return err
		}
	}
	if err := applyEnv(fs, env); err != nil {
		return err
	}
	for _, set := range flags {
		if err := apply(fs, set.key, set.value, "flag --"+set.key); err != nil {
			return err
		}
	}
	return nil
}

type setting struct{ key, value string }

// readFlags parses args. It leaves their values in fs, where the other sources replace them: the settings that it returns
// are to be applied after those.
func readFlags(fs *pflag.FlagSet, args []string) (set []setting, file string, err error) {
	all := pflag.NewFlagSet(fs.Name(), pflag.ContinueOnError)
	all.Usage = func() {}
	all.AddFlagSet(fs)
	all.StringVar(&file, flagConfig, "", "")
	if err := all.Parse(args); err != nil {
		if wrong, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
			return nil, "", unusable("flag --"+wrong.GetFlag().Name, wrong.GetFlag(), wrong.GetValue())
		}
		return nil, "", err //nolint:wrapcheck // in the words of the package for flags, or ErrHelp
	}
	if all.NArg() > 0 {
		return nil, "", &ExtraArgumentError{Argument: all.Arg(0)}
	}
	all.Visit(func(f *pflag.Flag) {
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
		return fmt.Errorf("read configuration %s: %w", path, err)
	}
	values := make(map[string]string)
	if err := flatten(values, "", tree); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
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

// applyEnv sets keys from variables. A variable with our prefix that names no key is an error, unless it is for somebody else.
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
		if strings.HasPrefix(name, envPrefix) && !foreign(fs, name) {
			return fmt.Errorf("variable %s: no such key", name)
		}
	}
	return nil
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
		return unusable(source, f, value)
	}
	return nil
}

// unusable says what a value would have to be. Texts of libraries about it speak of their functions.
func unusable(source string, f *pflag.Flag, value string) error {
	want := "a " + f.Value.Type()
	switch f.Value.Type() {
	case "bool":
		want = "true or false"
	case "int":
		want = "a whole number"
	case "float64":
		want = "a number"
	case "duration":
		want = "a duration with its unit, such as 15s or 10m"
	}
	return fmt.Errorf("%s: %s: cannot use %q, it must be %s", source, f.Name, value, want)
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
