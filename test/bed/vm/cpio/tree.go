package cpio

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Tree writes an archive as the file system that it becomes: each entry once, each after the directory that it is in.
type Tree struct {
	w    *Writer
	have map[string]bool
}

// NewTree returns a Tree that is written to w.
func NewTree(w io.Writer) *Tree { return &Tree{w: NewWriter(w), have: map[string]bool{"": true}} }

// Close writes the end of the archive. It does not close the underlying writer.
func (t *Tree) Close() error { return t.w.Close() }

// Has reports whether there is an entry at a path of the guest.
func (t *Tree) Has(guest string) bool { return t.have[rel(guest)] }

// AddHost adds a file of the host under an absolute path of the guest, or a folder with everything in it. A program
// that is linked dynamically is an error, unless the guest has its linker already.
func (t *Tree) AddHost(host, guest string) error {
	if !path.IsAbs(guest) {
		return fmt.Errorf("adding %s to the guest: %q is not an absolute path", host, guest)
	}
	host, err := filepath.EvalSymlinks(host)
	if err != nil {
		return fmt.Errorf("adding to the guest: %w", err)
	}
	return filepath.WalkDir(host, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("adding to the guest: %w", err)
		}
		return t.addEntry(p, path.Join(guest, filepath.ToSlash(strings.TrimPrefix(p, host))), d)
	})
}

func (t *Tree) addEntry(host, guest string, d fs.DirEntry) error {
	info, err := d.Info()
	if err != nil {
		return fmt.Errorf("adding %s to the guest: %w", host, err)
	}
	switch info.Mode().Type() {
	case fs.ModeDir:
		return t.AddDir(guest, info.Mode().Perm())
	case fs.ModeSymlink:
		target, err := os.Readlink(host)
		if err != nil {
			return fmt.Errorf("adding %s to the guest: %w", host, err)
		}
		h := Header{Name: rel(guest), Mode: fs.ModeSymlink | 0o777, Size: int64(len(target))}
		return t.Add(h, strings.NewReader(target))
	case 0:
		return t.addFile(host, guest, info)
	}
	return fmt.Errorf("adding %s to the guest: neither file nor folder nor link: %v", host, info.Mode())
}

func (t *Tree) addFile(host, guest string, info fs.FileInfo) error {
	f, err := os.Open(host)
	if err != nil {
		return fmt.Errorf("adding to the guest: %w", err)
	}
	defer f.Close()
	if interp := interpreter(f); interp != "" && !t.Has(interp) {
		return fmt.Errorf("adding %s to the guest: it is linked dynamically, and the guest has no %s (for Go: CGO_ENABLED=0)",
			host, interp)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("adding to the guest: %w", err)
	}
	return t.Add(Header{Name: rel(guest), Mode: info.Mode().Perm(), Size: info.Size()}, f)
}

// interpreter returns the dynamic linker that a program asks for, or nothing.
func interpreter(r io.ReaderAt) string {
	f, err := elf.NewFile(r)
	if err != nil {
		return ""
	}
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		b, err := io.ReadAll(p.Open())
		if err != nil {
			return ""
		}
		return string(bytes.TrimRight(b, "\x00"))
	}
	return ""
}

// AddBytes adds a file.
func (t *Tree) AddBytes(guest string, b []byte) error {
	return t.Add(Header{Name: rel(guest), Mode: 0o644, Size: int64(len(b))}, bytes.NewReader(b))
}

// AddDir adds a directory, if it is not there.
func (t *Tree) AddDir(guest string, perm fs.FileMode) error {
	if t.Has(guest) {
		return nil
	}
	return t.Add(Header{Name: rel(guest), Mode: fs.ModeDir | perm}, nil)
}

// Add adds an entry and the directories above it. r has the h.Size bytes of its content.
func (t *Tree) Add(h Header, r io.Reader) error {
	if dir := path.Dir(h.Name); dir != "." {
		if err := t.AddDir("/"+dir, 0o755); err != nil {
			return err
		}
	}
	if t.have[h.Name] {
		return fmt.Errorf("adding %s to the guest: it is there twice", h.Name)
	}
	t.have[h.Name] = true
	return t.w.Add(h, r)
}

// rel is a guest path as archives have it.
func rel(guest string) string { return strings.TrimPrefix(path.Clean(guest), "/") }
