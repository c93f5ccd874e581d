package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
)

func main() {
	if err := run(os.Stdout, suite(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "parity:", err)
		os.Exit(1)
	}
}

func run(out io.Writer, of []clause, args []string) error {
	flags := flag.NewFlagSet("report", flag.ContinueOnError)
	flags.SetOutput(out)
	write := flags.String("write", "", "bring this `document` up to date")
	check := flags.String("check", "", "fail if this `document` is not up to date")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("read arguments: %w", err)
	}
	var results []result
	for _, arg := range flags.Args() {
		name, path, ok := strings.Cut(arg, "=")
		if !ok {
			return fmt.Errorf("argument %q is not name=file", arg)
		}
		r, err := open(name, path)
		if err != nil {
			return err
		}
		results = append(results, r)
	}
	if err := compare(out, of, results); err != nil {
		return err
	}
	if *write != "" {
		return writeDocument(*write, of, results)
	}
	if *check != "" {
		return checkDocument(out, *check, of, results)
	}
	return nil
}

func open(name, path string) (r result, err error) {
	file, err := os.Open(path)
	if err != nil {
		return r, fmt.Errorf("open run: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return read(name, file)
}
