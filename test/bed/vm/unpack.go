package vm

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// unpacking is an archive that arrives in pieces.
type unpacking struct {
	w    *io.PipeWriter
	done chan error
}

func startUnpacking(dir string) *unpacking {
	r, w := io.Pipe()
	u := &unpacking{w: w, done: make(chan error, 1)}
	go func() {
		err := unpack(r, dir)
		r.CloseWithError(err)
		u.done <- err
	}()
	return u
}

func (u *unpacking) write(p []byte) error {
	_, err := u.w.Write(p)
	return err
}

// end says that no more will come, because of an error or not.
func (u *unpacking) end(cause error) error {
	u.w.CloseWithError(cause)
	return <-u.done
}

// unpack writes the entries of a gzipped archive below dir and nowhere else.
func unpack(r io.Reader, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("making the folder for results: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("opening the folder for results: %w", err)
	}
	defer root.Close()
	z, err := gzip.NewReader(r)
	if err != nil {
		return fmt.Errorf("receiving files: %w", err)
	}
	a := tar.NewReader(z)
	for {
		h, err := a.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("receiving files: %w", err)
		}
		if err := unpackOne(root, h, a); err != nil {
			return fmt.Errorf("receiving %s: %w", filepath.Join(dir, h.Name), err)
		}
	}
	// The checksum stands at the end.
	if _, err := io.Copy(io.Discard, z); err != nil {
		return fmt.Errorf("receiving files: %w", err)
	}
	return nil
}

func unpackOne(root *os.Root, h *tar.Header, r io.Reader) error {
	mode := h.FileInfo().Mode()
	switch mode.Type() {
	case fs.ModeDir:
		return root.MkdirAll(h.Name, 0o755)
	case 0:
	default:
		return fmt.Errorf("mode %v: neither file nor folder", mode)
	}
	f, err := root.OpenFile(h.Name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode|0o600)
	if err != nil {
		return err
	}
	if _, err := io.Copy(f, r); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}
