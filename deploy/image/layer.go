package image

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// layer is the layer of an image. It implements [v1.Layer].
//
// Its files are read each time that the layer is, first for its digest and then for the archive: an image with Java is
// 330 MB, which need not be in memory. It is not compressed, because node and image are on one machine.
type layer struct {
	dirs  []string
	files []pair
	links []pair
	hash  v1.Hash
	size  int64
}

// pair is a path in the image and where its content is from: a file of this machine, or the target of a link.
type pair struct{ path, from string }

// newLayer returns the layer of the image's files and links, their directories, and the directories that programs
// expect.
func (i Image) newLayer() (*layer, error) {
	l := &layer{dirs: []string{"dev/", "etc/", "proc/", "run/", "sys/", "tmp/"}}
	for _, f := range i.Files {
		source, target, found := strings.Cut(f, "=")
		if !found {
			return nil, fmt.Errorf("%q: write FILE=PATH", f)
		}
		target = strings.TrimPrefix(target, "/")
		l.files = append(l.files, pair{target, source})
		for dir := path.Dir(target); dir != "."; dir = path.Dir(dir) {
			l.dirs = append(l.dirs, dir+"/")
		}
	}
	slices.Sort(l.dirs)
	l.dirs = slices.Compact(l.dirs)
	for _, link := range i.Links {
		from, to, found := strings.Cut(link, "=")
		if !found {
			return nil, fmt.Errorf("%q: write LINK=TARGET", link)
		}
		l.links = append(l.links, pair{strings.TrimPrefix(from, "/"), to})
	}
	sum := sha256.New()
	var size counter
	if err := l.write(io.MultiWriter(sum, &size)); err != nil {
		return nil, err
	}
	l.hash = v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(sum.Sum(nil))}
	l.size = int64(size)
	return l, nil
}

// counter counts the bytes that are written to it.
type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

// write writes the layer as a tar archive. Times and owners are zero.
func (l *layer) write(to io.Writer) error {
	w := tar.NewWriter(to)
	for _, dir := range l.dirs {
		h := tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755}
		if dir == "tmp/" {
			h.Mode = 0o1777 // for users other than root
		}
		if err := w.WriteHeader(&h); err != nil {
			return fmt.Errorf("adding %s: %w", dir, err)
		}
	}
	for _, f := range l.files {
		if err := addFile(w, f); err != nil {
			return fmt.Errorf("adding a file: %w", err)
		}
	}
	for _, link := range l.links {
		h := tar.Header{Typeflag: tar.TypeSymlink, Name: link.path, Linkname: link.from, Mode: 0o777}
		if err := w.WriteHeader(&h); err != nil {
			return fmt.Errorf("adding %s: %w", link.path, err)
		}
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("ending the layer: %w", err)
	}
	return nil
}

func addFile(w *tar.Writer, f pair) error {
	source, err := os.Open(f.from)
	if err != nil {
		return err
	}
	defer source.Close()
	info, err := source.Stat()
	if err != nil {
		return err
	}
	h := tar.Header{Typeflag: tar.TypeReg, Name: f.path, Mode: 0o755, Size: info.Size()}
	if err := w.WriteHeader(&h); err != nil {
		return fmt.Errorf("%s: %w", f.path, err)
	}
	if _, err := io.Copy(w, source); err != nil {
		return fmt.Errorf("%s: %w", f.from, err)
	}
	return nil
}

// Uncompressed returns the layer as a tar archive.
func (l *layer) Uncompressed() (io.ReadCloser, error) {
	read, write := io.Pipe()
	go func() { _ = write.CloseWithError(l.write(write)) }()
	return read, nil
}

// Compressed returns the same as Uncompressed.
func (l *layer) Compressed() (io.ReadCloser, error) { return l.Uncompressed() }

// Digest returns the SHA-256 of the layer.
func (l *layer) Digest() (v1.Hash, error) { return l.hash, nil }

// DiffID returns the same as Digest.
func (l *layer) DiffID() (v1.Hash, error) { return l.hash, nil }

// Size returns the size of the layer in bytes.
func (l *layer) Size() (int64, error) { return l.size, nil }

// MediaType returns the type of an uncompressed layer.
func (l *layer) MediaType() (types.MediaType, error) { return types.DockerUncompressedLayer, nil }
