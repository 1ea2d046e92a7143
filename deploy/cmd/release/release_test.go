package main

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// agent is the only image of the releases here.
var agent = product{"waterline/agent", []string{"program", "plain"}, "65532", "an agent"}

func sample(t *testing.T) release {
	t.Helper()
	r := release{version: "0.2.0", commit: "abc", products: []product{agent}, bin: t.TempDir(), out: t.TempDir()}
	for _, arch := range architectures {
		build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags=-s -w", "-o",
			filepath.Join(r.bin, "linux-"+arch)+"/", "./testdata/program", "./testdata/plain")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("building the program: %v: %s", err, out)
		}
	}
	return r
}

func made(t *testing.T, r release) string {
	t.Helper()
	var out strings.Builder
	if err := r.run(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// digest returns the digest of the image in a release's layout.
func digest(t *testing.T, r release) string {
	t.Helper()
	index, err := layout.ImageIndexFromPath(filepath.Join(r.out, "images/agent"))
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if n := len(manifest.Manifests); n != 1 {
		t.Fatalf("the layout has %d entries", n)
	}
	entry := manifest.Manifests[0]
	if tag := entry.Annotations["org.opencontainers.image.ref.name"]; tag != r.version || !entry.MediaType.IsIndex() {
		t.Errorf("the entry of the layout is a %s with the tag %q", entry.MediaType, tag)
	}
	return entry.Digest.String()
}

// TestSameDigest makes a release twice, the second time over an older one.
func TestSameDigest(t *testing.T) {
	first, second := sample(t), sample(t)
	made(t, first)
	older := second
	older.version = "0.1.0"
	made(t, older)
	if digest(t, older) == digest(t, first) {
		t.Error("two versions have the same digest")
	}
	made(t, second)
	if a, b := digest(t, first), digest(t, second); a != b {
		t.Errorf("the same programs gave the images %s and %s", a, b)
	}
	const bill = "sbom/program-linux-arm64.cdx.json"
	a, errA := os.ReadFile(filepath.Join(first.out, bill))
	b, errB := os.ReadFile(filepath.Join(second.out, bill))
	if err := errors.Join(errA, errB); err != nil || string(a) != string(b) {
		t.Errorf("the bills of materials differ: %v", err)
	}
}

// TestPush pushes a release to registries with and without the referrers of OCI 1.1, and pulls it for each
// architecture.
func TestPush(t *testing.T) {
	for kind, referrers := range map[string]bool{"OCI 1.1": true, "OCI 1.0": false} {
		t.Run(kind, func(t *testing.T) {
			server := httptest.NewServer(registry.New(registry.WithReferrersSupport(referrers),
				registry.Logger(log.New(io.Discard, "", 0))))
			defer server.Close()
			r := sample(t)
			r.registry = strings.TrimPrefix(server.URL, "http://") + "/mirror/"
			out := made(t, r)
			repository, err := name.NewRepository(strings.TrimSuffix(r.registry, "/") + "/waterline/agent")
			if err != nil {
				t.Fatal(err)
			}
			want := repository.Name() + "@" + digest(t, r) + "\n"
			if written, err := os.ReadFile(filepath.Join(r.out, "pushed.txt")); err != nil || string(written) != want ||
				!strings.HasSuffix(out, want) {
				t.Errorf("pushed.txt: %v: %s; printed: %s; want %s", err, written, out, want)
			}
			for _, arch := range architectures {
				pulled(t, repository, arch)
			}
		})
	}
}

// pulled checks the image of an architecture in a registry: its configuration, its files and its bill of materials.
func pulled(t *testing.T, repository name.Repository, arch string) {
	t.Helper()
	img, err := remote.Image(repository.Tag("0.2.0"), remote.WithPlatform(v1.Platform{OS: "linux", Architecture: arch}))
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Image(img); err != nil {
		t.Error(err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.Architecture != arch || config.OS != "linux" || config.Config.User != agent.user ||
		!slices.Equal(config.Config.Entrypoint, []string{"/bin/program"}) ||
		config.Config.Labels["org.opencontainers.image.version"] != "0.2.0" {
		t.Errorf("the configuration of %s: %+v", arch, config)
	}
	content := mutate.Extract(img)
	defer content.Close()
	var files []string
	for r := tar.NewReader(content); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag != tar.TypeDir {
			files = append(files, h.Name)
		}
	}
	if d := cmp.Diff([]string{"bin/program", "bin/plain"}, files); d != "" {
		t.Errorf("files of %s (-want +got):\n%s", arch, d)
	}

	hash, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	bills, err := remote.Referrers(repository.Digest(hash.String()))
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := bills.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	parts := map[string][]string{}
	for _, bill := range manifest.Manifests {
		if bill.ArtifactType != billType {
			t.Errorf("an artifact of type %s refers to the image of %s", bill.ArtifactType, arch)
		}
		artifact, err := remote.Image(repository.Digest(bill.Digest.String()))
		if err != nil {
			t.Fatal(err)
		}
		layers, err := artifact.Layers()
		if err != nil || len(layers) != 1 {
			t.Fatalf("the bill of materials has %d layers: %v", len(layers), err)
		}
		blob, err := layers[0].Compressed() // which it is not
		if err != nil {
			t.Fatal(err)
		}
		var b cdx.BOM
		if err := errors.Join(json.NewDecoder(blob).Decode(&b), blob.Close()); err != nil {
			t.Fatal(err)
		}
		program := b.Metadata.Component
		parts[program.Name] = []string{program.PackageURL}
		for _, c := range *b.Components {
			parts[program.Name] = append(parts[program.Name], c.PackageURL)
		}
	}
	require, err := exec.CommandContext(t.Context(), "go", "list", "-m", "k8s.io/utils").Output()
	if err != nil {
		t.Fatal(err)
	}
	ours := "pkg:golang/github.com/waterline-io/waterline@0.2.0?goarch=" + runtime.GOARCH + "&goos=" + runtime.GOOS
	std := "pkg:golang/std@" + strings.TrimPrefix(runtime.Version(), "go")
	if d := cmp.Diff(map[string][]string{
		"program": {ours, std, "pkg:golang/" + strings.Replace(strings.TrimSpace(string(require)), " ", "@", 1)},
		"plain":   {ours, std},
	}, parts); d != "" {
		t.Errorf("programs of %s and their modules (-want +got):\n%s", arch, d)
	}
}

func TestRefused(t *testing.T) {
	missing := sample(t)
	missing.bin = t.TempDir()
	badName := sample(t)
	badName.registry = "https://registry.example"
	unreachable := sample(t)
	unreachable.registry = "127.0.0.1:1"
	for want, r := range map[string]release{
		"image waterline/agent: bill of materials: ": missing,
		"pushing waterline/agent: ":                  badName,
		"pushing waterline/agent: Get ":              unreachable,
	} {
		if err := r.run(t.Context(), io.Discard); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
