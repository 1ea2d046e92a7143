// Package golden runs tests whose expected output is in files. A person can read the files; the flag -rewrite rewrites
// them.
//
// Blocks is nearly the format of github.com/cockroachdb/datadriven. It is our own because a block here has several
// commands, which datadriven would parse as one command and its input, and because datadriven defines a flag -rewrite
// too, for its own format only, while half of our golden files are YAML documents, tables or help texts.
package golden

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false,
	"rewrite the expected output of golden tests; commit a rewrite only if you understand what caused it")

// Each runs a subtest for each file that the patterns match, and returns the number of files. Each pattern must match a
// file. A file holds a test's input and its expected output: run gets the content and returns it with the output it
// computed, and the two must be equal.
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

// Compare checks that a file holds the output got. With -rewrite it writes got to the file.
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
		t.Errorf("%s: the output differs. If you understand what caused it, rewrite with -rewrite and commit. Got:\n%s",
			file, got)
	}
}

// Blocks runs a case and returns it with the output it computed. A case consists of blocks: commands, one a line, a
// line of four dashes, and their output, up to an empty line. Blocks calls do for each command and, at the dashes,
// outcome for the output. It skips empty lines and lines that begin with # among the commands.
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
		t.Fatalf("no line of dashes follows %q", pending)
	}
	return got.String()
}
