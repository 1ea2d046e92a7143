// Package cpio writes an initramfs: an archive in cpio's "newc" format, which the kernel's documentation describes in
// driver-api/early-userspace/buffer-format.
package cpio

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// File types of an entry's mode, as in stat(2).
const (
	typeDir  = 0o040000
	typeChar = 0o020000
	typeFile = 0o100000
	typeLink = 0o120000
)

// Tree writes an archive as the file system that it becomes: each entry once, each after the directory that it is in.
// Entries belong to root and have no times. Their paths are absolute ones of the guest.
type Tree struct {
	w    io.Writer
	next uint32 // inode
	have map[string]bool
}

// NewTree returns a Tree that is written to w.
func NewTree(w io.Writer) *Tree { return &Tree{w: w, have: map[string]bool{"": true}} }

// Close writes the end of the archive. It does not close the underlying writer.
func (t *Tree) Close() error { return t.write(entry{name: "TRAILER!!!"}, nil) }

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
		return t.AddLink(guest, target)
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
	return t.add(entry{name: rel(guest), mode: typeFile | uint32(info.Mode().Perm()), size: info.Size()}, f)
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
	return t.add(entry{name: rel(guest), mode: typeFile | 0o644, size: int64(len(b))}, bytes.NewReader(b))
}

// AddLink adds a symbolic link.
func (t *Tree) AddLink(guest, target string) error {
	return t.add(entry{name: rel(guest), mode: typeLink | 0o777, size: int64(len(target))}, strings.NewReader(target))
}

// AddConsole adds /dev/console. Without it, process 1 has no output: devtmpfs is not mounted yet.
func (t *Tree) AddConsole() error {
	return t.add(entry{name: "dev/console", mode: typeChar | 0o600, major: 5, minor: 1}, nil)
}

// AddDir adds a directory, if it is not there.
func (t *Tree) AddDir(guest string, perm fs.FileMode) error {
	if t.Has(guest) {
		return nil
	}
	return t.add(entry{name: rel(guest), mode: typeDir | uint32(perm)}, nil)
}

// rel is a guest path as archives have it.
func rel(guest string) string { return strings.TrimPrefix(path.Clean(guest), "/") }

// entry describes an entry. Major and minor are those of a device; size is that of what follows: the content of a file,
// the target of a symbolic link.
type entry struct {
	name               string
	mode, major, minor uint32
	size               int64
}

// add adds an entry and the directories above it. r has its content.
func (t *Tree) add(e entry, r io.Reader) error {
	if dir := path.Dir(e.name); dir != "." {
		if err := t.AddDir("/"+dir, 0o755); err != nil {
			return err
		}
	}
	if t.have[e.name] {
		return fmt.Errorf("adding %s to the guest: it is there twice", e.name)
	}
	t.have[e.name] = true
	return t.write(e, r)
}

// write writes an entry and its content, each filled up to a multiple of four bytes.
func (t *Tree) write(e entry, r io.Reader) error {
	if e.size > math.MaxUint32 {
		return fmt.Errorf("archiving %s: %d bytes are too many for the format", e.name, e.size)
	}
	t.next++
	b := []byte("070701")
	for _, v := range [13]uint32{
		t.next, e.mode, 0, 0, 1, 0, uint32(e.size), 0, 0, e.major, e.minor, uint32(len(e.name) + 1), 0,
	} {
		b = fmt.Appendf(b, "%08x", v)
	}
	b = append(b, e.name...)
	b = append(b, make([]byte, 4-len(b)%4)...) // one at least ends the name
	if _, err := t.w.Write(b); err != nil {
		return fmt.Errorf("archiving %s: %w", e.name, err)
	}
	if e.size == 0 {
		return nil
	}
	if _, err := io.CopyN(t.w, r, e.size); err != nil {
		return fmt.Errorf("archiving the content of %s: %w", e.name, err)
	}
	_, err := t.w.Write(make([]byte, (4-e.size%4)%4))
	return err
}
