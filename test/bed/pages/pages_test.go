package pages

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const page = "" +
	"<!-- test: TestA -->\n" +
	"```console\n$ first \\\noutput\n$ second\nmore output\n```\n\n" +
	"1. An item:\n\n" +
	"   <!-- not run: why -->\n" +
	"   ```sh\n   plain\n     indented\n   ```\n" +
	"```\nno language\n```\n"

// TestRead reads a page with blocks of each kind.
func TestRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(file, []byte(page), 0o600); err != nil {
		t.Fatal(err)
	}
	blocks, err := Read(file)
	if err != nil {
		t.Fatal(err)
	}
	want := []Block{
		{Language: "console", Text: "$ first \\\noutput\n$ second\nmore output\n", Mark: "test: TestA", Line: 2},
		{Language: "sh", Text: "plain\n  indented\n", Mark: "not run: why", Line: 12},
		{Text: "no language\n", Line: 16},
	}
	if d := cmp.Diff(want, blocks); d != "" {
		t.Fatalf("-want +got:\n%s", d)
	}
	if got := blocks[0].Commands(); got != "first \\\nsecond\n" {
		t.Errorf("the commands after a prompt are %q", got)
	}
	if got := blocks[1].Commands(); got != blocks[1].Text {
		t.Errorf("the commands without a prompt are %q", got)
	}
	run, err := RunBy(file, "TestA")
	if err != nil || len(run) != 1 {
		t.Errorf("TestA runs %v: %v", run, err)
	}
	for _, missing := range []error{
		func() error { _, err := RunBy(file, "TestB"); return err }(),
		func() error { _, err := Texts(file, "yaml"); return err }(),
		func() error { _, err := Read(file + ".no"); return err }(),
	} {
		if missing == nil {
			t.Error("nothing was found, without an error")
		}
	}
}
