package yarn

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestExclude adds and removes hosts beside those of others, which stay with their comments.
func TestExclude(t *testing.T) {
	for _, c := range []struct {
		name, content string
		add           map[string]time.Duration
		remove        string
		want          string
		err           string
	}{
		{
			name: "exclude", content: "# by hand\nold1 old2 # disks\nnight-1.x\n\nother\n", remove: "night-1.x",
			add: map[string]time.Duration{"night-2.x": time.Minute}, want: "# by hand\nold1 old2 # disks\n\nother\nnight-2.x\n",
		},
		{name: "exclude", content: "night-1.x other", remove: "night-1.x", want: "other\n"},
		{name: "exclude", content: "night-1.x # why\n", remove: "night-1.x", want: "# why\n"},
		{
			name: "exclude.xml", add: map[string]time.Duration{"night-2.x": 1500 * time.Millisecond},
			want: "<?xml version=\"1.0\"?>\n<hosts>\n  <host><name>night-2.x</name><timeout>2</timeout></host>\n</hosts>\n",
		},
		{name: "exclude.xml", content: "<hosts/>\n", want: "<hosts>\n</hosts>\n"},
		{
			name: "exclude.xml", content: "<hosts/>", add: map[string]time.Duration{"a&b": 0},
			want: "<hosts>\n  <host><name>a&amp;b</name><timeout>0</timeout></host>\n</hosts>",
		},
		{
			name: "exclude.xml",
			content: "<?xml version=\"1.0\"?>\n<!-- ours -->\n<hosts>\n  <host><name> Night-1.x </name></host>\n" +
				"  <!-- disks -->\n  <host><name>other</name><timeout>5</timeout></host>\n</hosts>\n",
			remove: "night-1.x", add: map[string]time.Duration{"night-3.x": time.Minute},
			want: "<?xml version=\"1.0\"?>\n<!-- ours -->\n<hosts>\n" +
				"  <!-- disks -->\n  <host><name>other</name><timeout>5</timeout></host>\n" +
				"  <host><name>night-3.x</name><timeout>60</timeout></host>\n</hosts>\n",
		},
		{name: "exclude.xml", content: "<hosts><host>", err: "XML syntax error"},
		{name: "exclude.xml", content: "<property/>", err: `begins with the element "property"`},
		{name: "exclude.xml", content: "other", err: "no element hosts"},
	} {
		f := ExcludeFile{t.TempDir(), c.name}
		if c.content != "" {
			path := filepath.Join(f.Dir, f.Name)
			if err := errors.Join(os.WriteFile(path, []byte(c.content), 0o600), os.Chmod(path, 0o664)); err != nil {
				t.Fatal(err)
			}
		}
		content, err := f.Read()
		if err != nil {
			t.Fatal(err)
		}
		next, err := f.With(content, c.add, map[string]bool{c.remove: true})
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%q: %v, want %s", c.content, err, c.err)
			}
			continue
		}
		if err != nil || string(next) != c.want {
			t.Errorf("%q: %v\n%s\nwant\n%s", c.content, err, next, c.want)
			continue
		}
		if err := f.Write(next); err != nil {
			t.Fatal(err)
		}
		if is, err := os.Stat(filepath.Join(f.Dir, f.Name)); err != nil || c.content != "" && is.Mode() != 0o664 {
			t.Errorf("%q: %v, %v; its mode was 0664", c.content, is, err)
		}
		hosts, err := f.Hosts(next)
		if err != nil || hosts[c.remove] {
			t.Errorf("%q: %v, %v", next, hosts, err)
		}
		for host := range c.add {
			if !hosts[host] {
				t.Errorf("%q lacks %s: %v", next, host, hosts)
			}
		}
		if left, _ := filepath.Glob(filepath.Join(f.Dir, ".*")); len(left) > 0 {
			t.Errorf("%v is left", left)
		}
	}
}

// TestExcludeConfined shows that a pool cannot name a file elsewhere, by a path or by a link.
func TestExcludeConfined(t *testing.T) {
	dir, other := t.TempDir(), filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(other, []byte("secret\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(other, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"link", "../" + filepath.Base(filepath.Dir(other)) + "/other"} {
		f := ExcludeFile{dir, name}
		if content, err := f.Read(); err == nil {
			t.Errorf("%s: read %q", name, content)
		}
	}
}

func FuzzExclude(f *testing.F) {
	f.Add([]byte("<hosts><host><name>a</name></host></hosts>"))
	f.Add([]byte("<!-- a --><hosts/>"))
	f.Fuzz(func(t *testing.T, content []byte) {
		file := ExcludeFile{Name: "x.xml"}
		next, err := file.With(content, map[string]time.Duration{"w.x": time.Minute}, nil)
		if err != nil {
			return
		}
		if hosts, err := file.Hosts(next); err != nil || !hosts["w.x"] {
			t.Errorf("%q became %q: %v, %v", content, next, hosts, err)
		}
	})
}
