package image

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// sample returns an image of two files below dir.
func sample(t *testing.T, dir string) Image {
	t.Helper()
	for file, content := range map[string]string{"program": "code", "library": strings.Repeat("data", 1000)} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return Image{
		Architecture: "arm64", User: "65532", Entrypoint: []string{"/bin/program", "-v"},
		Files: []string{dir + "/program=/bin/program", dir + "/library=/usr/lib/x/library"},
		Links: []string{"/bin/alias=program", "/lib=usr/lib"},
	}
}

func archive(t *testing.T, i Image) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "image.tar")
	if err := i.Archive("waterline/sample:1", out); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestSameBytes builds an image twice, from files with other paths, modes and times.
func TestSameBytes(t *testing.T) {
	first, second := sample(t, t.TempDir()), t.TempDir()
	other := sample(t, second)
	yesterday := time.Now().Add(-24 * time.Hour)
	if err := os.Chtimes(filepath.Join(second, "program"), yesterday, yesterday); err != nil {
		t.Fatal(err)
	}
	a, errA := os.ReadFile(archive(t, first))
	b, errB := os.ReadFile(archive(t, other))
	if err := errors.Join(errA, errB); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a, b) {
		t.Error("the same files gave different archives")
	}
}

// TestReadBack reads an archive with the library, as an image of its name.
func TestReadBack(t *testing.T) {
	tag, err := name.NewTag("waterline/sample:1")
	if err != nil {
		t.Fatal(err)
	}
	img, err := tarball.ImageFromPath(archive(t, sample(t, t.TempDir())), &tag)
	if err != nil {
		t.Fatal(err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c := config.Config
	got := fmt.Sprintf("%s %s %s %s %s", config.OS, config.Architecture, c.User, c.Entrypoint, c.Env)
	if want := "linux arm64 65532 [/bin/program -v] [PATH=/bin:/usr/bin]"; got != want {
		t.Errorf("configuration %s, want %s", got, want)
	}
	content := mutate.Extract(img)
	defer content.Close()
	var list strings.Builder
	for r := tar.NewReader(content); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&list, "%c %04o %d/%d %d %s %s\n", h.Typeflag, h.Mode, h.Uid, h.Gid, h.Size, h.Name, h.Linkname)
	}
	const want = `5 0755 0/0 0 bin 
5 0755 0/0 0 dev 
5 0755 0/0 0 etc 
5 0755 0/0 0 proc 
5 0755 0/0 0 run 
5 0755 0/0 0 sys 
5 1777 0/0 0 tmp 
5 0755 0/0 0 usr 
5 0755 0/0 0 usr/lib 
5 0755 0/0 0 usr/lib/x 
0 0755 0/0 4 bin/program 
0 0755 0/0 4000 usr/lib/x/library 
2 0777 0/0 0 bin/alias program
2 0777 0/0 0 lib usr/lib
`
	if list.String() != want {
		t.Errorf("files:\n%swant:\n%s", &list, want)
	}
}

func TestRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name  string
		image Image
		want  string
	}{
		{"Upper Case:1", Image{Files: []string{file + "=/f"}}, "naming the image: "},
		{"a:1", Image{Files: []string{file}}, "write FILE=PATH"},
		{"a:1", Image{Files: []string{"/no/such=/f"}}, "adding a file: open /no/such: "},
		{"a:1", Image{Files: []string{file + "=/f"}, Links: []string{"/l"}}, "write LINK=TARGET"},
	} {
		dir := t.TempDir()
		err := test.image.Archive(test.name, filepath.Join(dir, "image.tar"))
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("error %v, want %q", err, test.want)
		}
		if left, _ := os.ReadDir(dir); len(left) > 0 {
			t.Errorf("%q left %s behind", test.want, left[0].Name())
		}
	}
}
