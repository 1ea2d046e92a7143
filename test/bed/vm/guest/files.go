package guest

import (
	"archive/tar"
	"compress/gzip"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// sendFiles writes the files and folders below dir as a gzipped archive. Anything else it passes over.
func sendFiles(w io.Writer, dir string) error {
	z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		return fmt.Errorf("archiving %s: %w", dir, err)
	}
	a := tar.NewWriter(z)
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		return sendFile(a, path, strings.TrimPrefix(path, dir+"/"), d)
	})
	if err != nil {
		return err
	}
	if err := a.Close(); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return fmt.Errorf("archiving %s: %w", dir, err)
	}
	return nil
}

func sendFile(a *tar.Writer, path, name string, d fs.DirEntry) error {
	info, err := d.Info()
	if err != nil {
		return fmt.Errorf("archiving %s: %w", path, err)
	}
	if !info.IsDir() && !info.Mode().IsRegular() {
		return nil
	}
	h, err := tar.FileInfoHeader(info, "")
	if err != nil {
		return fmt.Errorf("archiving %s: %w", path, err)
	}
	h.Name = name
	if err := a.WriteHeader(h); err != nil || info.IsDir() {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("archiving %s: %w", path, err)
	}
	defer f.Close()
	_, err = io.CopyN(a, f, h.Size) // it may grow
	return err
}
