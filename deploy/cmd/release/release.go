package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/waterline-io/waterline/deploy/image"
)

const source = "https://github.com/waterline-io/waterline"

// architectures lists what every image is built for.
var architectures = []string{"amd64", "arm64"}

// product is an image of a release.
type product struct {
	repository string   // of the image, below the registry
	programs   []string // its files, in /bin; the image runs the first one
	user       string
	about      string
}

// products lists the images of a release. The agent runs as root, because the kernel's cgroup files belong to root. Its
// image has the command line too, for nodes without a shell.
var products = []product{
	{"waterline/agent", []string{"waterline-agent", "waterline"}, "0", "Waterline's agent on each node, and its command"},
	{"waterline/manager", []string{"waterline-manager"}, "65532", "Waterline's webhook and controllers"},
	{"waterline/guard", []string{"waterline-guard"}, "65532", "Waterline's guard beside a NodeManager of YARN"},
	{"waterline/scheduler", []string{"waterline-scheduler"}, "65532", "Kubernetes' scheduler with Waterline's plugins"},
}

// release says what to make.
type release struct {
	version, commit string
	bin, out        string // directories
	products        []product
	registry        string // empty: push nothing
	plainHTTP       bool
}

// run makes everything, and prints the size of each image.
func (r release) run(ctx context.Context, out io.Writer) error {
	var pushed strings.Builder
	for _, p := range r.products {
		index, bills, err := r.build(p, out)
		if err != nil {
			return fmt.Errorf("image %s: %w", p.repository, err)
		}
		if r.registry == "" {
			continue
		}
		ref, err := r.push(ctx, p, index, bills)
		if err != nil {
			return fmt.Errorf("pushing %s: %w", p.repository, err)
		}
		fmt.Fprintln(&pushed, ref)
	}
	if r.registry == "" {
		return nil
	}
	fmt.Fprint(out, &pushed)
	return os.WriteFile(filepath.Join(r.out, "pushed.txt"), []byte(pushed.String()), 0o644)
}

// build writes the OCI layout of an image, and returns the image for all architectures with the bills of materials of
// its programs, by architecture.
func (r release) build(p product, out io.Writer) (v1.ImageIndex, map[string][][]byte, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	bills := map[string][][]byte{}
	for _, arch := range architectures {
		var files []string
		for _, program := range p.programs {
			file := filepath.Join(r.bin, "linux-"+arch, program)
			bill, err := bill(file, r.version)
			if err == nil {
				err = r.writeBill(program+"-linux-"+arch, bill)
			}
			if err != nil {
				return nil, nil, fmt.Errorf("bill of materials: %w", err)
			}
			bills[arch] = append(bills[arch], bill)
			files = append(files, file+"=/bin/"+program)
		}
		img, err := image.Image{
			Architecture: arch, User: p.user, Entrypoint: []string{"/bin/" + p.programs[0]}, Files: files,
			Labels: map[string]string{
				"org.opencontainers.image.title":    p.about,
				"org.opencontainers.image.version":  r.version,
				"org.opencontainers.image.revision": r.commit,
				"org.opencontainers.image.source":   source,
				"org.opencontainers.image.licenses": "Apache-2.0",
			},
		}.OCI()
		if err != nil {
			return nil, nil, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}},
		})
		size, err := download(img)
		if err != nil {
			return nil, nil, err
		}
		fmt.Fprintf(out, "%-20s %-6s %5.1f MB\n", p.repository, arch, float64(size)/1e6)
	}
	dir := filepath.Join(r.out, "images", filepath.Base(p.repository))
	if err := os.RemoveAll(dir); err != nil {
		return nil, nil, err
	}
	// The layout has one entry, as tools expect that copy images by tag.
	path, err := layout.Write(dir, empty.Index)
	if err == nil {
		err = path.AppendIndex(index, layout.WithAnnotations(map[string]string{
			"org.opencontainers.image.ref.name": r.version,
		}))
	}
	if err != nil {
		return nil, nil, fmt.Errorf("writing the layout: %w", err)
	}
	return index, bills, nil
}

// download returns what a node downloads for an image, in bytes.
func download(img v1.Image) (int64, error) {
	manifest, err := img.Manifest()
	if err != nil {
		return 0, err
	}
	size := manifest.Config.Size
	for _, layer := range manifest.Layers {
		size += layer.Size
	}
	return size, nil
}

func (r release) writeBill(program string, bill []byte) error {
	dir := filepath.Join(r.out, "sbom")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, program+".cdx.json"), bill, 0o644)
}

// push pushes an image, and the bills of materials of each architecture as artifacts that refer to its image. It
// returns the image's name with its digest.
func (r release) push(ctx context.Context, p product, index v1.ImageIndex, bills map[string][][]byte) (string, error) {
	var options []name.Option
	if r.plainHTTP {
		options = append(options, name.Insecure)
	}
	tag, err := name.NewTag(strings.TrimSuffix(r.registry, "/")+"/"+p.repository+":"+r.version, options...)
	if err != nil {
		return "", err
	}
	pusher, err := remote.NewPusher(remote.WithAuthFromKeychain(authn.DefaultKeychain), remote.WithContext(ctx))
	if err != nil {
		return "", err
	}
	if err := pusher.Push(ctx, tag, index); err != nil {
		return "", err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return "", err
	}
	for _, subject := range manifest.Manifests {
		for _, bill := range bills[subject.Platform.Architecture] {
			artifact, err := attachment(subject, bill)
			if err != nil {
				return "", err
			}
			digest, err := partial.Descriptor(artifact)
			if err != nil {
				return "", err
			}
			if err := pusher.Push(ctx, tag.Context().Digest(digest.Digest.String()), artifact); err != nil {
				return "", fmt.Errorf("bill of materials: %w", err)
			}
		}
	}
	digest, err := index.Digest()
	if err != nil {
		return "", err
	}
	return tag.Context().Digest(digest.String()).Name(), nil
}
