package waterline_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/test/bed/pages"
)

// TestKeys counts what the README says that one has to know: one key for the owner of a batch job, and at most six for
// an operator. Each exists: as a value of the chart, or as a label that its templates or the API name.
func TestKeys(t *testing.T) {
	read := func(files ...string) string {
		t.Helper()
		var all strings.Builder
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			all.Write(content)
		}
		return all.String()
	}
	names := read("api/v1alpha1/names.go", "deploy/chart/templates/_helpers.tpl")
	schema := read("deploy/chart/values.schema.json", "deploy/chart/crds/waterline.io_colocationpolicies.yaml")
	for who, most := range map[string]int{"the owner of a batch job": 1, "the operator": 6} {
		_, row, _ := strings.Cut(read("README.md"), "| "+who+" |")
		row, _, _ = strings.Cut(row, "|\n")
		keys := regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row, -1)
		if len(keys) == 0 || len(keys) > most {
			t.Errorf("%s must know %d keys, want 1 to %d", who, len(keys), most)
		}
		for _, m := range keys {
			key, _, _ := strings.Cut(m[1], ":")
			if strings.Contains(key, "/") {
				if !strings.Contains(names, `"`+key+`"`) {
					t.Errorf("no label is named %s", key)
				}
				continue
			}
			for field := range strings.SplitSeq(key, ".") {
				if !strings.Contains(schema, `"`+field+`"`) && !strings.Contains(schema, field+":") {
					t.Errorf("%s: the chart has no field %s", key, field)
				}
			}
		}
	}
}

// TestPolicyFields checks that the comparison counts the fields of a policy, and that the chart has a value for each.
func TestPolicyFields(t *testing.T) {
	var schema struct {
		Properties struct {
			Policy struct{ Properties map[string]any }
		}
	}
	if err := json.Unmarshal([]byte(readText(t, "deploy/chart/values.schema.json")), &schema); err != nil {
		t.Fatal(err)
	}
	values := schema.Properties.Policy.Properties
	spec := reflect.TypeFor[v1alpha1.ColocationPolicySpec]()
	for i := range spec.NumField() {
		name, _, _ := strings.Cut(spec.Field(i).Tag.Get("json"), ",")
		if values[name] == nil {
			t.Errorf("the chart has no value policy.%s", name)
		}
	}
	if len(values) != spec.NumField() {
		t.Errorf("the chart has %d values of a policy, which has %d fields", len(values), spec.NumField())
	}
	claim := fmt.Sprintf(": %d fields at the first level", spec.NumField())
	if !strings.Contains(readText(t, "docs/comparison.md"), claim) {
		t.Errorf("docs/comparison.md does not say %q", claim)
	}
}

// TestCommands checks that each block of commands in the documentation is run by a test, or says why not: the line
// before its fence is "<!-- test: NAME -->" or "<!-- not run: REASON -->". A test that runs a block names its file, and
// is run by make test-all. A test that a reason names exists.
func TestCommands(t *testing.T) {
	tests := everyTest(t)
	selected := selectedTests(t)
	run, excused := 0, 0
	for _, file := range documents(t) {
		blocks, err := pages.Read(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range blocks {
			name, isTest := strings.CutPrefix(b.Mark, "test: ")
			reason, isExcuse := strings.CutPrefix(b.Mark, "not run: ")
			found := tests[name]
			switch {
			case !b.Shell():
			case isTest && !strings.HasPrefix(found.file, "test/"):
				t.Errorf("%s:%d: %q is no test below test/", file, b.Line, name)
			case isTest && !strings.Contains(found.source, `"`+file+`"`) && !strings.Contains(found.source, `/`+file+`"`):
				t.Errorf("%s:%d: %s does not name this file", file, b.Line, name)
			case isTest && (found.rare() || strings.HasPrefix(found.file, "test/e2e/") && !selected(name)):
				t.Errorf("%s:%d: neither make test nor make test-all runs %s", file, b.Line, name)
			case isTest:
				run++
			case isExcuse && len(strings.Fields(reason)) > 2:
				excused++
			default:
				t.Errorf("%s:%d: no line \"<!-- test: NAME -->\" or \"<!-- not run: REASON -->\" before the commands",
					file, b.Line)
			}
			for _, named := range regexp.MustCompile(`\bTest[A-Z]\w+`).FindAllString(reason, -1) {
				if tests[named].file == "" {
					t.Errorf("%s:%d: the reason names %s, which is no test", file, b.Line, named)
				}
			}
		}
	}
	if run == 0 || excused == 0 {
		t.Errorf("%d blocks are run and %d are not: the marks were not found", run, excused)
	}
}

// aTest is where a test is.
type aTest struct {
	file     string
	source   string // of the file
	function string // source of the test
}

// rare reports whether only make bench or make soak runs the test.
func (a aTest) rare() bool {
	return strings.HasPrefix(a.source, "//go:build bench") ||
		regexp.MustCompile(`if !soak[^\n]*\{\n\t+t\.Skip`).MatchString(a.function)
}

// everyTest returns the tests of both modules, by name.
func everyTest(t *testing.T) map[string]aTest {
	t.Helper()
	tests := map[string]aTest{}
	function := regexp.MustCompile(`(?ms)^func (Test\w+)\(.*?^}`)
	err := filepath.WalkDir(".", func(path string, d os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (path == "out" || strings.HasPrefix(path, ".git")):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		source := readText(t, path)
		for _, m := range function.FindAllStringSubmatch(source, -1) {
			tests[m[1]] = aTest{path, source, m[0]}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return tests
}

// selectedTests returns what reports whether make test-all runs a test of test/e2e: whether a target that
// test/levels.sh makes for it selects the test by name. That is where levels choose tests; they run other folders
// whole.
func selectedTests(t *testing.T) func(name string) bool {
	t.Helper()
	makefile := readText(t, "Makefile")
	alone := regexp.MustCompile(`(?m)^NODE_ALONE := (.*)$`).FindStringSubmatch(makefile)
	if alone == nil {
		t.Fatal("the Makefile has no NODE_ALONE")
	}
	levels := readText(t, "test/levels.sh")
	levels = regexp.MustCompile(`(?s)\[ "\$form" = soak \] \|\| return 0.*?\n\t}`).ReplaceAllString(levels, "")
	argument := func(line, name string) *regexp.Regexp {
		m := regexp.MustCompile(`-test\.` + name + `=(?:'([^']+)'|([^' )]+))`).FindStringSubmatch(line)
		if m == nil {
			return nil
		}
		return regexp.MustCompile(strings.ReplaceAll(m[1]+m[2], "$$", "$"))
	}
	type selection struct{ run, skip *regexp.Regexp }
	var all []selection
	for _, level := range regexp.MustCompile(`level "[^"]+" ([a-z0-9-]+)`).FindAllStringSubmatch(levels, -1) {
		recipe := regexp.MustCompile(`(?m)^` + level[1] + `:.*\n((?:\t.*\n)+)`).FindStringSubmatch(makefile)
		if recipe == nil {
			continue // of a pattern, or without commands
		}
		for line := range strings.Lines(recipe[1]) {
			if !strings.HasPrefix(line, "\t$(E2E)") {
				continue
			}
			line = strings.ReplaceAll(line, "$(NODE_ALONE)", alone[1])
			if run := argument(line, "run"); run != nil {
				all = append(all, selection{run, argument(line, "skip")})
			}
		}
	}
	if len(all) < 8 {
		t.Fatalf("%d commands for tests of test/e2e were found", len(all))
	}
	return func(name string) bool {
		return slices.ContainsFunc(all, func(s selection) bool {
			return s.run.MatchString(name) && (s.skip == nil || !s.skip.MatchString(name))
		})
	}
}
