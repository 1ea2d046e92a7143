package cpio

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestOtherReader shows an archive to the tool of the same name: everything that a tree can hold is there once, after
// its directory.
func TestOtherReader(t *testing.T) {
	tool, err := exec.LookPath("cpio")
	if err != nil {
		t.Skip("cpio is not installed")
	}
	host := t.TempDir()
	for name, text := range map[string]string{"empty": "", "one": "1", "five": "12345"} {
		if err := os.WriteFile(filepath.Join(host, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("one", filepath.Join(host, "link")); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	w := NewTree(&b)
	for _, err := range []error{
		w.AddConsole(), w.AddHost(host, "/a/b"), w.AddBytes("/etc/hosts", []byte("127.0.0.1")), w.AddDir("/a", 0o700),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.AddBytes("/a/b/one", nil); err == nil {
		t.Error("a file is there twice")
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cmd := exec.Command(tool, "--extract", "--quiet", "--nonmatching", "dev/*")
	cmd.Dir, cmd.Stdin = dir, bytes.NewReader(b.Bytes())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for name, want := range map[string]string{
		"a/b/empty": "", "a/b/one": "1", "a/b/five": "12345", "a/b/link": "1", "etc/hosts": "127.0.0.1",
	} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	list := exec.Command(tool, "--list", "--verbose", "--numeric-uid-gid")
	list.Stdin = bytes.NewReader(b.Bytes())
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"crw-------   1 0        0          5,   1 ", "link -> one", "-rwxr-xr-x   1 0        0               5 ",
	} {
		if !bytes.Contains(out, []byte(want)) {
			t.Errorf("no %q in the list:\n%s", want, out)
		}
	}
}
