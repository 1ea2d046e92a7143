// Package image builds container images without a container engine. An image is one layer of the given files. The same
// files give the same bytes.
package image

import (
	"compress/gzip"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Image describes an image for Linux.
type Image struct {
	Architecture string            // as GOARCH has it, such as arm64
	Entrypoint   []string          // program and arguments
	User         string            // number of the user that it runs as
	Files        []string          // FILE=PATH: a file of this machine and its path in the image
	Links        []string          // LINK=TARGET: symbolic links
	Labels       map[string]string // such as org.opencontainers.image.version
}

// Archive builds the image and writes it as an archive, which docker load, ctr image import and podman load accept. The
// name has a tag.
func (i Image) Archive(named, out string) error {
	tag, err := name.NewTag(named)
	if err != nil {
		return fmt.Errorf("naming the image: %w", err)
	}
	layer, err := i.newLayer()
	if err != nil {
		return err
	}
	img, err := i.build(empty.Image, layer)
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

// OCI returns the image as one for registries: compressed, with the media types of OCI.
func (i Image) OCI() (v1.Image, error) {
	plain, err := i.newLayer()
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(plain.Uncompressed, tarball.WithCompressionLevel(gzip.BestCompression),
		tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
	if err != nil {
		return nil, fmt.Errorf("compressing the layer: %w", err)
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	return i.build(base, layer)
}

// build adds the configuration and the layer to an empty image.
func (i Image) build(base v1.Image, layer v1.Layer) (v1.Image, error) {
	img, err := mutate.ConfigFile(base, &v1.ConfigFile{
		Architecture: i.Architecture,
		OS:           "linux",
		Config: v1.Config{
			Entrypoint: i.Entrypoint, User: i.User, Env: []string{"PATH=/bin:/usr/bin"}, Labels: i.Labels,
		},
		RootFS: v1.RootFS{Type: "layers"},
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
