package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
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

// build returns the image.
func (i image) build() (v1.Image, error) {
	layer, err := i.newLayer()
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
	img, err = mutate.AppendLayers(img, layer)
	if err != nil {
		return nil, fmt.Errorf("adding the layer: %w", err)
	}
	return img, nil
}
