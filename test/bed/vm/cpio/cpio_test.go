package cpio

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func entries() []struct {
	Header
	body string
} {
	return []struct {
		Header
		body string
	}{
		{Header{Name: "dev", Mode: fs.ModeDir | 0o755}, ""},
		{Header{Name: "dev/console", Mode: fs.ModeDevice | fs.ModeCharDevice | 0o600, Major: 5, Minor: 1}, ""},
		{Header{Name: "a", Mode: 0o644, Size: 1}, "1"},
		{Header{Name: "bc", Mode: 0o755, Size: 5}, "12345"},
		{Header{Name: "empty", Mode: 0o600}, ""},
		{Header{Name: "link", Mode: fs.ModeSymlink | 0o777, Size: 2}, "bc"},
	}
}

func archive(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	w := NewWriter(&b)
	for _, e := range entries() {
		if err := w.Add(e.Header, strings.NewReader(e.body)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestRoundTrip(t *testing.T) {
	r := NewReader(bytes.NewReader(archive(t)))
	for i, e := range entries() {
		h, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if h != e.Header {
			t.Errorf("entry %d: %+v, want %+v", i, h, e.Header)
		}
		if i%2 == 0 { // every second body is passed over
			continue
		}
		if b, err := io.ReadAll(r); err != nil || string(b) != e.body {
			t.Errorf("%s: %q, %v, want %q", h.Name, b, err, e.body)
		}
	}
	if _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("after the last entry: %v", err)
	}
}

// TestCutShort checks that no prefix of an archive passes for one.
func TestCutShort(t *testing.T) {
	whole := archive(t)
	for n := range whole[:len(whole)-4] {
		r := NewReader(bytes.NewReader(whole[:n]))
		var err error
		for err == nil {
			_, err = r.Next()
		}
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("the first %d bytes: error %v", n, err)
		}
	}
}

// TestOtherReader shows the archive to the tool of the same name.
func TestOtherReader(t *testing.T) {
	tool, err := exec.LookPath("cpio")
	if err != nil {
		t.Skip("cpio is not installed")
	}
	cmd := exec.Command(tool, "--list", "--verbose", "--numeric-uid-gid")
	cmd.Dir, cmd.Stdin = filepath.Clean(t.TempDir()), bytes.NewReader(archive(t))
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"crw-------   1 0        0          5,   1 ", "link -> bc", "-rwxr-xr-x   1 0        0               5 ",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %q in the list:\n%s", want, out)
		}
	}
}

func FuzzReader(f *testing.F) {
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := NewReader(bytes.NewReader(b))
		for {
			if _, err := r.Next(); err != nil {
				return
			}
		}
	})
}
