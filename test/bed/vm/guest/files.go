package guest

import (
	"compress/gzip"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/waterline-io/waterline/test/bed/vm/cpio"
)

// sendFiles writes the files and folders below dir as a gzipped archive. Anything else it passes over.
func sendFiles(w io.Writer, dir string) error {
	z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		return fmt.Errorf("archiving %s: %w", dir, err)
	}
	a := cpio.NewWriter(z)
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

func sendFile(a *cpio.Writer, path, name string, d fs.DirEntry) error {
	info, err := d.Info()
	if err != nil {
		return fmt.Errorf("archiving %s: %w", path, err)
	}
	switch {
	case info.IsDir():
		return a.Add(cpio.Header{Name: name, Mode: fs.ModeDir | info.Mode().Perm()}, nil)
	case !info.Mode().IsRegular():
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("archiving %s: %w", path, err)
	}
	defer f.Close()
	return a.Add(cpio.Header{Name: name, Mode: info.Mode().Perm(), Size: info.Size()}, f)
}
