// Package cpio writes and reads archives in cpio's "newc" format, the one that the kernel unpacks an initramfs from.
//
// The format is described in the kernel's documentation, driver-api/early-userspace/buffer-format.
package cpio

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"strconv"
)

const (
	magic      = "070701"
	trailer    = "TRAILER!!!"
	headerSize = len(magic) + 13*8
	maxName    = 4096
)

// The file types of the mode field, as in stat(2).
const (
	typeMask = 0o170000
	typeDir  = 0o040000
	typeChar = 0o020000
	typeFile = 0o100000
	typeLink = 0o120000
)

// Header describes one entry. Entries belong to root and have no times.
type Header struct {
	// Name is the path without a leading slash.
	Name string
	// Mode is a permission with one of the types directory, character device, symbolic link or none, for a file.
	Mode fs.FileMode
	// Size is the number of bytes that follow: the content of a file, the target of a symbolic link.
	Size int64
	// Major and Minor are those of a device.
	Major, Minor uint32
}

// ErrFormat is returned for bytes that are no archive, or one with entries that this package does not know.
var ErrFormat = errors.New("not a cpio archive in the newc format")

// Writer writes an archive.
type Writer struct {
	w    io.Writer
	next uint32
}

// NewWriter returns a Writer to w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Add writes an entry and the h.Size bytes of it that r has; r may be nil if there are none.
func (w *Writer) Add(h Header, r io.Reader) error {
	mode, err := toMode(h.Mode)
	if err != nil {
		return fmt.Errorf("archiving %s: %w", h.Name, err)
	}
	if h.Size > math.MaxUint32 {
		return fmt.Errorf("archiving %s: %d bytes are too many for the format", h.Name, h.Size)
	}
	if err := w.header(h, mode); err != nil {
		return fmt.Errorf("archiving %s: %w", h.Name, err)
	}
	if h.Size == 0 {
		return nil
	}
	if _, err := io.CopyN(w.w, r, h.Size); err != nil {
		return fmt.Errorf("archiving the content of %s: %w", h.Name, err)
	}
	return w.pad(int(h.Size % 4))
}

// Close writes the end of the archive. It does not close the underlying writer.
func (w *Writer) Close() error {
	if err := w.header(Header{Name: trailer}, 0); err != nil {
		return fmt.Errorf("ending the archive: %w", err)
	}
	return nil
}

func (w *Writer) header(h Header, mode uint32) error {
	w.next++
	b := []byte(magic)
	for _, v := range [13]uint32{
		w.next, mode, 0, 0, 1, 0, uint32(h.Size), 0, 0, h.Major, h.Minor, uint32(len(h.Name) + 1), 0,
	} {
		b = fmt.Appendf(b, "%08x", v)
	}
	b = append(b, h.Name...)
	b = append(b, 0)
	if _, err := w.w.Write(b); err != nil {
		return err
	}
	return w.pad(len(b) % 4)
}

// pad fills up to a multiple of four after n bytes.
func (w *Writer) pad(n int) error {
	_, err := w.w.Write(make([]byte, (4-n%4)%4))
	return err
}

// Reader reads an archive.
type Reader struct {
	r    io.Reader
	left int64 // of the current entry
	pad  int64
}

// NewReader returns a Reader of r.
func NewReader(r io.Reader) *Reader { return &Reader{r: r} }

// Next goes to the next entry, whose bytes Read then returns. At the end of the archive it returns io.EOF.
func (r *Reader) Next() (Header, error) {
	if _, err := io.CopyN(io.Discard, r.r, r.left+r.pad); err != nil {
		return Header{}, fmt.Errorf("skipping to the next entry: %w", noEOF(err))
	}
	r.left, r.pad = 0, 0
	b := make([]byte, headerSize)
	if _, err := io.ReadFull(r.r, b); err != nil {
		return Header{}, fmt.Errorf("reading a header: %w", noEOF(err))
	}
	if string(b[:len(magic)]) != magic {
		return Header{}, fmt.Errorf("header %q: %w", b[:len(magic)], ErrFormat)
	}
	var field [13]uint32
	for i := range field {
		v, err := strconv.ParseUint(string(b[len(magic)+8*i:][:8]), 16, 32)
		if err != nil {
			return Header{}, fmt.Errorf("field %d of a header: %w: %w", i, ErrFormat, err)
		}
		field[i] = uint32(v)
	}
	nameSize := int(field[11])
	if nameSize < 1 || nameSize > maxName {
		return Header{}, fmt.Errorf("a name of %d bytes: %w", nameSize, ErrFormat)
	}
	name := make([]byte, nameSize+(4-(headerSize+nameSize)%4)%4)
	if _, err := io.ReadFull(r.r, name); err != nil {
		return Header{}, fmt.Errorf("reading a name: %w", noEOF(err))
	}
	h := Header{Name: string(name[:nameSize-1]), Size: int64(field[6]), Major: field[9], Minor: field[10]}
	if h.Name == trailer {
		return Header{}, io.EOF
	}
	mode, err := fromMode(field[1])
	if err != nil {
		return Header{}, fmt.Errorf("entry %s: %w", h.Name, err)
	}
	h.Mode = mode
	r.left, r.pad = h.Size, (4-h.Size%4)%4
	return h, nil
}

// Read returns bytes of the current entry, and io.EOF after its last.
func (r *Reader) Read(p []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	n, err := r.r.Read(p[:min(int64(len(p)), r.left)])
	r.left -= int64(n)
	return n, noEOF(err)
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func toMode(m fs.FileMode) (uint32, error) {
	perm := uint32(m.Perm())
	switch m.Type() {
	case 0:
		return typeFile | perm, nil
	case fs.ModeDir:
		return typeDir | perm, nil
	case fs.ModeSymlink:
		return typeLink | perm, nil
	case fs.ModeDevice | fs.ModeCharDevice:
		return typeChar | perm, nil
	}
	return 0, fmt.Errorf("mode %v: %w", m, ErrFormat)
}

func fromMode(m uint32) (fs.FileMode, error) {
	perm := fs.FileMode(m) & fs.ModePerm
	switch m & typeMask {
	case typeFile:
		return perm, nil
	case typeDir:
		return fs.ModeDir | perm, nil
	case typeLink:
		return fs.ModeSymlink | perm, nil
	case typeChar:
		return fs.ModeDevice | fs.ModeCharDevice | perm, nil
	}
	return 0, fmt.Errorf("mode %o: %w", m, ErrFormat)
}
