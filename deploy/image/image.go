package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// image describes the image to build.
type image struct {
	name       string   // name and tag
	entrypoint []string // program and arguments
	user       string
	files      []string // FILE=PATH: a file of this machine and its path in the image
	links      []string // LINK=TARGET: symbolic links
}

// write builds the image and writes it as an archive.
func (i image) write(out string) error {
	tag, err := name.NewTag(i.name)
	if err != nil {
		return fmt.Errorf("naming the image: %w", err)
	}
	img, err := i.build()
	if err != nil {
		return err
	}
	// The archive gets its name last. A process that has the old archive open keeps it, and no process finds half an
	// archive.
	archive, err := os.CreateTemp(filepath.Dir(out), filepath.Base(out)+".*")
	if err != nil {
		return fmt.Errorf("writing the archive: %w", err)
	}
	defer func() { _ = os.Remove(archive.Name()) }() // after a rename there is nothing to remove
	err = errors.Join(tarball.Write(tag, img, archive), archive.Chmod(0o644), archive.Close())
	if err == nil {
		err = os.Rename(archive.Name(), out)
	}
	if err != nil {
		return fmt.Errorf("writing the archive: %w", err)
	}
	return nil
}

// build returns the image. Its layer is not compressed: node and image are on one machine, and ffmpeg with its
// libraries is 250 MB.
func (i image) build() (v1.Image, error) {
	layer, err := i.fileSystem()
	if err != nil {
		return nil, err
	}
	img, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{
		Architecture: runtime.GOARCH,
		OS:           "linux",
		Config:       v1.Config{Entrypoint: i.entrypoint, User: i.user, Env: []string{"PATH=/bin:/usr/bin"}},
		RootFS:       v1.RootFS{Type: "layers"},
	})
	if err != nil {
		return nil, fmt.Errorf("configuring the image: %w", err)
	}
	img, err = mutate.AppendLayers(img, static.NewLayer(layer, types.DockerUncompressedLayer))
	if err != nil {
		return nil, fmt.Errorf("adding the layer: %w", err)
	}
	return img, nil
}

// fileSystem returns a tar archive of the files, the links, their directories and the directories that programs expect.
// Times and owners are zero.
func (i image) fileSystem() ([]byte, error) {
	type file struct {
		path    string
		content []byte
	}
	var files []file
	dirs := []string{"dev/", "etc/", "proc/", "run/", "sys/", "tmp/"}
	size := 0
	for _, f := range i.files {
		source, target, found := strings.Cut(f, "=")
		if !found {
			return nil, fmt.Errorf("%q: write FILE=PATH", f)
		}
		content, err := os.ReadFile(source)
		if err != nil {
			return nil, fmt.Errorf("adding a file: %w", err)
		}
		target = strings.TrimPrefix(target, "/")
		files = append(files, file{target, content})
		size += len(content)
		for dir := path.Dir(target); dir != "."; dir = path.Dir(dir) {
			dirs = append(dirs, dir+"/")
		}
	}
	slices.Sort(dirs)
	dirs = slices.Compact(dirs)

	var b bytes.Buffer
	const header = 2 << 10 // more than a tar header and the padding of a file take
	b.Grow(size + header*(len(files)+len(dirs)+len(i.links)+1))
	w := tar.NewWriter(&b)
	add := func(h tar.Header, content []byte) error {
		h.Size = int64(len(content))
		if err := w.WriteHeader(&h); err != nil {
			return fmt.Errorf("adding %s: %w", h.Name, err)
		}
		if _, err := w.Write(content); err != nil {
			return fmt.Errorf("adding %s: %w", h.Name, err)
		}
		return nil
	}
	for _, dir := range dirs {
		h := tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755}
		if dir == "tmp/" {
			h.Mode = 0o1777 // for users other than root
		}
		if err := add(h, nil); err != nil {
			return nil, err
		}
	}
	for _, f := range files {
		if err := add(tar.Header{Typeflag: tar.TypeReg, Name: f.path, Mode: 0o755}, f.content); err != nil {
			return nil, err
		}
	}
	for _, link := range i.links {
		from, to, found := strings.Cut(link, "=")
		if !found {
			return nil, fmt.Errorf("%q: write LINK=TARGET", link)
		}
		h := tar.Header{Typeflag: tar.TypeSymlink, Name: strings.TrimPrefix(from, "/"), Linkname: to, Mode: 0o777}
		if err := add(h, nil); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("ending the layer: %w", err)
	}
	return b.Bytes(), nil
}
