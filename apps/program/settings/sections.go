package settings

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// envPrefix stands before the names of variables.
const envPrefix = "FENCELOCK_"

// sections are the words with which the keys of all programs of this project begin. A variable of a section that the program
// itself has no key in is for another program, and passes; one of the program's own sections must name a key. So a misspelt
// key is found by the program that it was meant for, and a misspelt section by every one.
func sections() []string {
	return []string{
		"lock", "etcd", "postgres", "server", "admin", // lockserver
		"payment", "fence", "rail.proxy", "rail.stub", "payout", // the payout system
		"log",
	}
}

// words are the variables of the command line client and of the programs that it runs.
func words() []string {
	return []string{"SERVER", "NAMESPACE", "SESSION", "KEY", "TOKEN", "SIGNED_TOKEN"}
}

// Variable is the name of the environment variable for a key.
func Variable(key string) string {
	return envPrefix + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(key))
}

// foreign reports whether a variable with our prefix that names none of our keys is meant for another program, or for tests.
func foreign(fs *pflag.FlagSet, name string) bool {
	if strings.HasPrefix(name, envPrefix+"TEST_") || slices.Contains(words(), strings.TrimPrefix(name, envPrefix)) {
		return true
	}
	of := ""
	for _, section := range sections() {
		if strings.HasPrefix(name, Variable(section)+"_") {
			of = section
		}
	}
	own := false
	fs.VisitAll(func(f *pflag.Flag) { own = own || strings.HasPrefix(f.Name, of+".") })
	return of != "" && !own
}

// sectioned refuses keys that other programs would not know to be ours.
func sectioned(fs *pflag.FlagSet) error {
	var err error
	fs.VisitAll(func(f *pflag.Flag) {
		if !slices.ContainsFunc(sections(), func(section string) bool { return strings.HasPrefix(f.Name, section+".") }) {
			err = fmt.Errorf("key %s is of no section that all programs know", f.Name)
		}
	})
	return err
}
