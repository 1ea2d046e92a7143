package waterline_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

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

// TestCommands checks that each block of commands in the documentation is run by a test, or says why not: the line
// before its fence is "<!-- test: NAME -->" or "<!-- not run: REASON -->". A test that runs a block names its file.
func TestCommands(t *testing.T) {
	tests := map[string]string{} // source of the file that has the test, by the test's name
	function := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err := filepath.WalkDir("test", func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, m := range function.FindAllStringSubmatch(string(source), -1) {
			tests[m[1]] = string(source)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	run, excused := 0, 0
	for _, file := range documents(t) {
		blocks, err := pages.Read(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range blocks {
			name, isTest := strings.CutPrefix(b.Mark, "test: ")
			reason, isExcuse := strings.CutPrefix(b.Mark, "not run: ")
			switch {
			case !b.Shell():
			case isTest && !strings.Contains(tests[name], `"`+file+`"`) && !strings.Contains(tests[name], `/`+file+`"`):
				t.Errorf("%s:%d: %q is no test below test/ that names this file", file, b.Line, name)
			case isTest:
				run++
			case isExcuse && len(strings.Fields(reason)) > 2:
				excused++
			default:
				t.Errorf("%s:%d: no line \"<!-- test: NAME -->\" or \"<!-- not run: REASON -->\" before the commands",
					file, b.Line)
			}
		}
	}
	if run == 0 || excused == 0 {
		t.Errorf("%d blocks are run and %d are not: the marks were not found", run, excused)
	}
}
