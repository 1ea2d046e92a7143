package waterline_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestLinks checks that the target of every relative link in the documentation exists, and every document named by its
// path.
func TestLinks(t *testing.T) {
	files := []string{"README.md", "CONTRIBUTING.md"}
	err := filepath.WalkDir("docs", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasSuffix(path, ".md") {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	link, named := regexp.MustCompile(`\]\(([^)\s]+)\)`), regexp.MustCompile("`(docs/[^`\\s]+\\.md)`")
	found := 0
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		check := func(target, written string) {
			found++
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s has a link to %s, which does not exist", file, written)
			}
		}
		for _, m := range link.FindAllStringSubmatch(string(content), -1) {
			to, _, _ := strings.Cut(m[1], "#")
			if to != "" && !strings.Contains(to, ":") {
				check(filepath.Join(filepath.Dir(file), to), to)
			}
		}
		for _, m := range named.FindAllStringSubmatch(string(content), -1) {
			check(m[1], m[1])
		}
	}
	if found == 0 {
		t.Error("found no links")
	}
}
