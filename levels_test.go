package waterline_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestLists checks that each test that the Makefile lists for make test exists where the list's level looks for it. A
// name without a test would run nothing and pass.
func TestLists(t *testing.T) {
	makefile := readText(t, "Makefile")
	for list, folder := range map[string]string{
		"SHORT_KERNEL": "test/kernel", "SHORT_VM": "test/kernel", "SHORT_API": "test/e2e", "SHORT_NODE": "test/e2e",
		"SHORT_SCHEDULER": "test/e2e", "SHORT_YARN": "test/yarn",
	} {
		m := regexp.MustCompile(`(?m)^` + list + ` := ((?:.*\\\n)*.*)$`).FindStringSubmatch(makefile)
		if m == nil {
			t.Errorf("the Makefile has no list %s", list)
			continue
		}
		tests := testsOf(t, folder, func(string) bool { return true })
		names := strings.Fields(strings.ReplaceAll(m[1], `\`, " "))
		for _, name := range names {
			if !tests["Test"+name] {
				t.Errorf("%s lists %s, and %s has no Test%s", list, name, folder, name)
			}
		}
		if len(names) < 2 {
			t.Errorf("%s has the names %q", list, names)
		}
	}
}

// TestBenches checks that each test of test/e2e that measures, in a file with the build tag bench, is run by a bench,
// and that each bench there runs one. Benches of the other folders run all tests with the tag.
func TestBenches(t *testing.T) {
	tests := testsOf(t, "test/e2e", func(source string) bool { return strings.HasPrefix(source, "//go:build bench") })
	run := map[string]bool{}
	calls := regexp.MustCompile(`(?m)^bench \S+ \d+ (?:e2e|yarn|pods|node|node_v2) \S+ '?([^' \n]+)'?`).
		FindAllStringSubmatch(readText(t, "test/bench.sh"), -1)
	for _, call := range calls {
		selects := regexp.MustCompile(call[1])
		found := false
		for name := range testsOf(t, "test/e2e", func(string) bool { return true }) {
			if selects.MatchString(name) {
				run[name], found = true, true
			}
		}
		if !found {
			t.Errorf("a bench runs %s, which no test is called", call[1])
		}
	}
	for name := range tests {
		if !run[name] {
			t.Errorf("test/bench.sh has no bench that runs %s", name)
		}
	}
	if len(calls) < 10 || len(tests) < 20 {
		t.Errorf("found %d benches and %d tests", len(calls), len(tests))
	}
}

func readText(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// testsOf returns the tests of a folder's files whose source is wanted.
func testsOf(t *testing.T, folder string, wanted func(source string) bool) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]bool{}
	for _, file := range files {
		source := readText(t, file)
		if !wanted(source) {
			continue
		}
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(t `).FindAllStringSubmatch(source, -1) {
			all[m[1]] = true
		}
	}
	return all
}
