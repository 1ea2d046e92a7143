package waterline_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// documents returns the paths of all Markdown files.
func documents(t *testing.T) []string {
	t.Helper()
	files := []string{"README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"}
	err := filepath.WalkDir("docs", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasSuffix(path, ".md") {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestLinks checks that the target of every relative link in the documentation exists, and every document named by its
// path.
func TestLinks(t *testing.T) {
	files := documents(t)
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

// TestMarkdownLines checks that lines of Markdown have at most 100 columns, outside of tables and code blocks. A line
// with a link may be longer, because links cannot be wrapped.
func TestMarkdownLines(t *testing.T) {
	const most = 100
	for _, file := range documents(t) {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		code := false
		for i, line := range strings.Split(string(content), "\n") {
			if strings.HasPrefix(strings.TrimSpace(line), "```") {
				code = !code
			}
			wrappable := !code && !strings.HasPrefix(line, "|") && !strings.Contains(line, "](")
			if n := utf8.RuneCountInString(line); wrappable && n > most {
				t.Errorf("%s:%d has %d columns, at most %d are allowed", file, i+1, n, most)
			}
		}
	}
}
