// Package golden runs tests whose expected output stands in files, which a person can read and a flag of the test rewrites.
package golden

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the expected output of golden tests; commit that only if you understand what caused it")

// Each runs a test for each file that the patterns match, and returns how many there are; each pattern must match one. What run
// makes of a file's content is what the file must hold: what is given in it, and what came of that.
func Each(t *testing.T, run func(t *testing.T, content string) string, patterns ...string) int {
	t.Helper()
	n := 0
	for _, pattern := range patterns {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s matches no file: %v", pattern, err)
		}
		n += len(files)
		for _, file := range files {
			t.Run(strings.TrimSuffix(filepath.Base(file), filepath.Ext(file)), func(t *testing.T) {
				content, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				Compare(t, file, run(t, string(content)))
			})
		}
	}
	return n
}

// Compare checks that a file holds what came out, or writes that there.
func Compare(t *testing.T, file, got string) {
	t.Helper()
	if *rewrite {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Error(err)
	}
	if got != string(want) {
		t.Errorf("%s: something else came out. If you understand what caused it, rewrite with -rewrite and commit. Got:\n%s", file, got)
	}
}

// Blocks goes through a case that consists of blocks: commands, a line of four dashes, and what came of them, up to an empty
// line. It does each command and, at the dashes, writes what outcome returns. Empty lines and lines that begin with # are no
// commands.
func Blocks(t *testing.T, content string, do func(command string) error, outcome func() string) string {
	t.Helper()
	var got strings.Builder
	commands, pending := true, ""
	for line := range strings.Lines(content) {
		line = strings.TrimRight(line, "\n")
		switch {
		case commands && line == "----":
			commands, pending = false, ""
			fmt.Fprintf(&got, "----\n%s", outcome())
		case commands:
			fmt.Fprintln(&got, line)
			if strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#") {
				continue
			}
			if err := do(line); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			pending = line
		case line == "":
			commands = true
			fmt.Fprintln(&got)
		}
	}
	if pending != "" {
		t.Fatalf("no line of dashes stands below %q", pending)
	}
	return got.String()
}
