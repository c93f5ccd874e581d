package boundaries

import (
	"testing"
)

func TestCoreRequiresNothing(t *testing.T) {
	t.Parallel()
	for _, m := range modulesOf(t) {
		if m.name() == "core" {
			report(t, requirements(m))
			return
		}
	}
	t.Fatal("there is no module core")
}

func TestModulesImportWhatTheTableAllows(t *testing.T) {
	t.Parallel()
	modules := modulesOf(t)
	report(t, unjudged(modules, allowances()))
	for _, m := range modules {
		for _, a := range allowances() {
			if a.module != m.name() {
				continue
			}
			t.Run(a.module, func(t *testing.T) {
				t.Parallel()
				packages, err := readPackages(rootOf(t), m)
				if err != nil {
					t.Fatal(err)
				}
				report(t, foreignImports(a, packages))
			})
		}
	}
}

func TestModulesAreComplete(t *testing.T) {
	t.Parallel()
	modules := modulesOf(t)
	workspace, err := readWorkspace(rootOf(t))
	if err != nil {
		t.Fatal(err)
	}
	report(t, missingReplaces(modules))
	report(t, unlisted(modules, workspace))
}

func TestPackagesAreDocumented(t *testing.T) {
	t.Parallel()
	report(t, undocumented(sourcesOf(t)))
}

func TestSources(t *testing.T) {
	t.Parallel()
	sources := sourcesOf(t)
	for _, r := range rules() {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			for _, s := range sources {
				if !generated(s) {
					report(t, r.check(s))
				}
			}
		})
	}
}

func TestMigrationsStayAsTheyWereApplied(t *testing.T) {
	t.Parallel()
	migrations, err := readSources(rootOf(t), ".sql")
	if err != nil {
		t.Fatal(err)
	}
	report(t, changedMigrations(applied, migrations))
}

func rootOf(t *testing.T) string {
	t.Helper()
	root, err := findRoot()
	if err != nil {
		t.Fatal(err)
	}
	return root
}

func modulesOf(t *testing.T) []module {
	t.Helper()
	modules, err := readModules(rootOf(t))
	if err != nil {
		t.Fatal(err)
	}
	const few = 5
	if len(modules) < few {
		t.Fatalf("found %d modules: the search is broken", len(modules))
	}
	return modules
}

func sourcesOf(t *testing.T) []source {
	t.Helper()
	sources, err := readSources(rootOf(t), ".go")
	if err != nil {
		t.Fatal(err)
	}
	const few = 20
	if len(sources) < few {
		t.Fatalf("found %d files: the search is broken", len(sources))
	}
	return sources
}

func report(t *testing.T, findings []string) {
	t.Helper()
	for _, finding := range findings {
		t.Error(finding)
	}
}
