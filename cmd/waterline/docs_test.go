package main

import (
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	docs "github.com/waterline-io/waterline/test/bed/pages"
)

// TestDocumentedCommands checks each command of waterline in the documentation, also in blocks that no test runs: the
// command exists, and so does each of its flags.
func TestDocumentedCommands(t *testing.T) {
	files := []string{"../../README.md", "../../CONTRIBUTING.md"}
	err := filepath.WalkDir("../../docs", func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".md") {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, file := range files {
		blocks, err := docs.Read(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range blocks {
			if !b.Shell() {
				continue
			}
			for line := range strings.Lines(strings.ReplaceAll(b.Commands(), "\\\n", " ")) {
				before, line, ok := strings.Cut(" "+line, " waterline ")
				if !ok || strings.Contains(before, "helm") {
					continue // no command, or the name of a release
				}
				line = strings.ReplaceAll(line, "SEED", "1")
				line, _, _ = strings.Cut(line, " #")
				found++
				command, rest, err := rootCommand("waterline").Find(strings.Fields(line))
				if err == nil {
					err = command.ParseFlags(rest)
				}
				if err != nil || !command.HasParent() {
					t.Errorf("%s:%d: waterline %s: %v", file, b.Line, strings.TrimSpace(line), err)
				}
			}
		}
	}
	if found < 10 {
		t.Errorf("only %d commands were found", found)
	}
}
