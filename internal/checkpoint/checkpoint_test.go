package checkpoint_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/waterline-io/waterline/internal/checkpoint"
)

const kind checkpoint.Kind = "waterline-test 1"

// TestRead checks that a document comes back whole or not at all, and that what is damaged is kept, out of the way.
func TestRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "document")
	var got string
	read := func() error {
		got = ""
		return kind.Read(path, func(body []byte) error {
			if string(body) == "nonsense" {
				return errors.New("it makes no sense")
			}
			got = string(body)
			return nil
		})
	}
	if err := read(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("nothing is there: %v", err)
	}
	for _, body := range []string{"", "a\nb", "\x00"} {
		if err := kind.Write(path, []byte(body)); err != nil {
			t.Fatal(err)
		}
		if err := read(); err != nil || got != body {
			t.Errorf("%q comes back as %q, %v", body, got, err)
		}
	}
	whole := string(kind.Encode([]byte("body")))
	for name, content := range map[string]string{
		"half of it": whole[:len(whole)-1], "more than it": whole + "x", "another body": whole[:len(whole)-1] + "z",
		"no line":                 "body",
		"another kind":            string(checkpoint.Kind("waterline-test 2").Encode([]byte("body"))),
		"what the parser refuses": string(kind.Encode([]byte("nonsense"))),
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := read(); !errors.Is(err, checkpoint.ErrDamaged) || got != "" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		if kept, err := os.ReadFile(path + ".damaged"); err != nil || string(kept) != content {
			t.Errorf("%s: kept aside is %q, %v", name, kept, err)
		}
		if err := read(); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: it is still there: %v", name, err)
		}
	}
}

// TestSetAside checks that only a whole document of the same kind and of another version makes room.
func TestSetAside(t *testing.T) {
	path := filepath.Join(t.TempDir(), "document")
	next := checkpoint.Kind("waterline-test 2")
	for content, moves := range map[string]bool{
		"": false, "body": false, string(kind.Encode([]byte("body"))): false,
		string(next.Encode([]byte("body"))):                                true,
		string(next.Encode([]byte("body"))) + "x":                          false,
		string(checkpoint.Kind("waterline-else 2").Encode([]byte("body"))): false,
		string(checkpoint.Kind("waterline-test ../x").Encode(nil)):         false,
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		aside, err := kind.SetAside(path)
		if err != nil || (aside != "") != moves {
			t.Errorf("%q: %q, %v", content, aside, err)
			continue
		}
		if !moves {
			continue
		}
		if now, err := os.ReadFile(next.Aside(path)); err != nil || string(now) != content || aside != next.Aside(path) {
			t.Errorf("%q is kept as %q in %q, %v", content, now, aside, err)
		}
	}
	_ = os.Remove(path)
	if aside, err := kind.SetAside(path); aside != "" || err != nil {
		t.Errorf("without a document: %q, %v", aside, err)
	}
}
