// Package release_test makes a release, pushes it to a real registry, and uses it as people do who install it.
package release_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"sigs.k8s.io/yaml"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/report"
	"github.com/waterline-io/waterline/lab/measure"
	"github.com/waterline-io/waterline/test/bed/oci"
)

const (
	version = "0.0.1-test"
	root    = "../.." // of the repository
)

// TestRelease makes a release twice, the second time in another folder, and checks everything that it publishes. With
// WATERLINE_BENCH=file, it writes the sizes of the images.
func TestRelease(t *testing.T) {
	if testing.Short() {
		t.Skip("builds for four platforms")
	}
	for _, program := range []string{oci.Program, "qemu-aarch64-static", "skopeo"} {
		if _, err := exec.LookPath(program); err != nil {
			missing(t, err)
		}
	}
	registry := oci.Start(t).Address + "/mirror"
	key := signingKey(t)
	first := filepath.Join(root, "out/release")
	release(t, root, registry, key)
	sizes := map[string]float64{}
	for _, p := range []struct {
		repository, user string
		programs         []string
	}{
		{"agent", "0", []string{"waterline", "waterline-agent"}}, {"manager", "65532", []string{"waterline-manager"}},
		{"guard", "65532", []string{"waterline-guard"}}, {"scheduler", "65532", []string{"waterline-scheduler"}},
	} {
		for _, arch := range []string{"amd64", "arm64"} {
			t.Run(p.repository+" "+arch, func(t *testing.T) {
				download, files := checkImage(t, registry, p.repository, p.user, arch, p.programs)
				sizes[p.repository+"_"+arch+"_download_mb"] = float64(download) / 1e6
				sizes[p.repository+"_"+arch+"_files_mb"] = float64(files) / 1e6
			})
		}
	}
	t.Run("chart", func(t *testing.T) { checkChart(t, registry) })
	t.Run("layout", func(t *testing.T) {
		run(t, "skopeo", "inspect", "--raw", "oci:"+filepath.Join(first, "images/agent")+":"+version)
	})
	t.Run("archives", func(t *testing.T) { checkArchives(t, filepath.Join(first, "dist")) })
	t.Run("signatures", func(t *testing.T) {
		if key == "" {
			t.Skip("nothing is signed: make out/bin/cosign builds cosign, which takes minutes")
		}
		checkSignatures(t, first, key)
	})
	t.Run("reproducible", func(t *testing.T) {
		copied := copyTree(t)
		release(t, copied, registry, "")
		if d := cmp.Diff(digests(t, first), digests(t, filepath.Join(copied, "out/release"))); d != "" {
			t.Errorf("a second build differs (-first +second):\n%s", d)
		}
	})
	if file := os.Getenv("WATERLINE_BENCH"); file != "" && !t.Failed() {
		r := report.Begin("release", "sizes of the images")
		version := cgroup.V1
		if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
			version = cgroup.V2
		}
		r.Machine, r.Metrics = measure.DescribeMachine(version), sizes
		commit := strings.TrimSpace(run(t, "git", "rev-parse", "--short", "HEAD"))
		if err := r.Save(file, "", commit); err != nil {
			t.Error(err)
		}
	}
}

// missing skips a test on a machine that lacks something. CI lacks nothing.
func missing(t *testing.T, err error) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatal(err)
	}
	t.Skip(err)
}

// signingKey makes a key to sign with. It is empty without cosign.
func signingKey(t *testing.T) string {
	t.Helper()
	cosign, err := filepath.Abs(filepath.Join(root, "out/bin/cosign"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(cosign); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err) // make test-release has built it
		}
		return ""
	}
	t.Setenv("COSIGN_PASSWORD", "secret")
	c := exec.CommandContext(t.Context(), cosign, "generate-key-pair")
	c.Dir = t.TempDir()
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("making a key: %v: %s", err, out)
	}
	return filepath.Join(c.Dir, "cosign.key")
}

// release makes a release in a folder with the sources.
func release(t *testing.T, dir, registry, key string) {
	t.Helper()
	c := exec.CommandContext(t.Context(), "deploy/release.sh", "all")
	c.Dir = dir
	c.Env = append(os.Environ(), "VERSION="+version, "REGISTRY="+registry, "KEY="+key, "PLAIN_HTTP=1", "COMMIT="+
		strings.Repeat("ab", 20))
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("making the release: %v: %s", err, out)
	}
}

// run runs a program, and returns what it prints.
func run(t *testing.T, program string, args ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), program, args...)
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%s %v: %v: %s", program, args, err, &stderr)
	}
	return string(out)
}

// checkImage pulls an image, and checks its size and its programs, which it runs. It returns the bytes of the download
// and of the programs.
func checkImage(t *testing.T, registry, repository, user, arch string, programs []string) (download, unpacked int64) {
	ref, err := name.ParseReference(registry + "/waterline/" + repository + ":" + version)
	if err != nil {
		t.Fatal(err)
	}
	img, err := remote.Image(ref, remote.WithPlatform(v1.Platform{OS: "linux", Architecture: arch}))
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
	if config.Architecture != arch || config.Config.User != user ||
		config.Config.Labels["org.opencontainers.image.version"] != version {
		t.Errorf("the configuration: %+v", config)
	}
	manifest, err := img.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	download = manifest.Config.Size + manifest.Layers[0].Size
	if repository == "agent" && download > 20e6 {
		t.Errorf("the agent's image is a download of %d bytes, at most 20 MB are allowed", download)
	}
	digest, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	bills, err := remote.Referrers(ref.Context().Digest(digest.String()))
	if err != nil {
		t.Fatal(err)
	}
	index, err := bills.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	isOther := func(d v1.Descriptor) bool { return d.ArtifactType != "application/vnd.cyclonedx+json" }
	if n := len(slices.DeleteFunc(index.Manifests, isOther)); n != len(programs) {
		t.Errorf("%d bills of materials refer to the image, want one for each of %v", n, programs)
	}
	content := mutate.Extract(img)
	defer content.Close()
	dir := t.TempDir()
	var want []string
	for _, program := range programs {
		want = append(want, "bin/"+program)
	}
	if files := unpack(t, content, dir); !slices.Equal(files, want) {
		t.Errorf("the image has the files %v, want %v", files, want)
	}
	for _, program := range programs {
		file := filepath.Join(dir, program)
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		unpacked += info.Size()
		command := []string{file, "--version"}
		if arch == "arm64" {
			command = append([]string{"qemu-aarch64-static"}, command...)
		}
		want := version
		if repository == "scheduler" {
			want = "+waterline-" + version
		}
		if out := run(t, command[0], command[1:]...); !strings.Contains(out, want) {
			t.Errorf("%s --version prints %q, want %s", program, out, want)
		}
	}
	t.Logf("a download of %.1f MB, programs of %.1f MB", float64(download)/1e6, float64(unpacked)/1e6)
	return download, unpacked
}

// unpack writes the files of a tar archive into a directory, and returns their names in order.
func unpack(t *testing.T, from io.Reader, dir string) []string {
	t.Helper()
	var files []string
	for r := tar.NewReader(from); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeDir {
			continue
		}
		to := filepath.Join(dir, path.Base(h.Name))
		file, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, h.FileInfo().Mode())
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.Copy(file, r)
		if err := errors.Join(err, file.Close()); err != nil {
			t.Fatal(err)
		}
		files = append(files, h.Name)
	}
	slices.Sort(files)
	return files
}

// checkChart pulls the chart, and checks that every image that it names is in the registry for both architectures.
func checkChart(t *testing.T, registry string) {
	rendered := run(t, filepath.Join(root, "out/bin/helm"), "template", "waterline", "oci://"+registry+"/charts/waterline",
		"--version", version, "--plain-http", "--kube-version", "v1.36.3", "--set",
		"scheduler.enabled=true,manager.pools.namespaces={yarn}")
	images := map[string]bool{}
	named := regexp.MustCompile(`(?m)(?:image: |--guard-image=)"?([^"\s]+)"?$`)
	for _, m := range named.FindAllStringSubmatch(rendered, -1) {
		images[m[1]] = true
	}
	if len(images) != 4 {
		t.Errorf("the chart names the images %v", images)
	}
	for image := range images {
		ref, err := name.ParseReference(image)
		if err != nil {
			t.Fatal(err)
		}
		index, err := remote.Index(ref)
		if err != nil {
			t.Errorf("the chart names %s: %v", image, err)
			continue
		}
		manifest, err := index.IndexManifest()
		if err != nil {
			t.Fatal(err)
		}
		var platforms []string
		for _, m := range manifest.Manifests {
			platforms = append(platforms, m.Platform.String())
		}
		if !slices.Equal(platforms, []string{"linux/amd64", "linux/arm64"}) {
			t.Errorf("%s is for %v", image, platforms)
		}
	}
}

// checkArchives checks the manifest for krew against the archives, and runs what they contain.
func checkArchives(t *testing.T, dist string) {
	var plugin struct {
		Spec struct {
			Version   string
			Platforms []struct {
				Selector         struct{ MatchLabels struct{ OS, Arch string } }
				URI, Sha256, Bin string
			}
		}
	}
	content, err := os.ReadFile(filepath.Join(dist, "waterline-krew.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(content, &plugin); err != nil {
		t.Fatal(err)
	}
	if n := len(plugin.Spec.Platforms); n != 4 || plugin.Spec.Version != "v"+version {
		t.Errorf("the manifest for krew has %d platforms, version %s", n, plugin.Spec.Version)
	}
	for _, p := range plugin.Spec.Platforms {
		file := path.Base(p.URI)
		content, err := os.ReadFile(filepath.Join(dist, file))
		if err != nil {
			t.Fatal(err)
		}
		if sum := sha256.Sum256(content); hex.EncodeToString(sum[:]) != p.Sha256 {
			t.Errorf("the sum of %s is not that of the manifest for krew", file)
		}
		unzipped, err := gzip.NewReader(bytes.NewReader(content))
		if err != nil {
			t.Fatal(err)
		}
		dir, l := t.TempDir(), p.Selector.MatchLabels
		want := []string{"LICENSE", "waterline"}
		if l.OS == "linux" {
			want = append(want, "waterline-agent")
		}
		if files := unpack(t, unzipped, dir); !slices.Equal(files, want) {
			t.Errorf("%s has %v, want %v", file, files, want)
		}
		if l.OS == "linux" && l.Arch == "amd64" {
			out := run(t, filepath.Join(dir, p.Bin), "version")
			if !strings.HasPrefix(out, "waterline "+version+", commit abababababab, ") {
				t.Errorf("waterline version prints %q", out)
			}
		}
	}
	c := exec.CommandContext(t.Context(), "sha256sum", "--check", "--quiet", "checksums.txt")
	c.Dir = dist
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("checksums: %v: %s", err, out)
	}
}

// checkSignatures verifies what was pushed, and the checksums.
func checkSignatures(t *testing.T, dir, key string) {
	cosign, public := filepath.Join(root, "out/bin/cosign"), strings.TrimSuffix(key, ".key")+".pub"
	pushed, err := os.ReadFile(filepath.Join(dir, "pushed.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for ref := range strings.FieldsSeq(string(pushed)) {
		run(t, cosign, "verify", "--key", public, "--insecure-ignore-tlog", "--allow-http-registry", ref)
	}
	sums := filepath.Join(dir, "dist/checksums.txt")
	run(t, cosign, "verify-blob", "--key", public, "--insecure-ignore-tlog", "--bundle", sums+".sigstore.json", sums)
}

// digests returns the digests of a release's images, and the sums of its files.
func digests(t *testing.T, dir string) []string {
	t.Helper()
	var all []string
	for _, file := range []string{"pushed.txt", "dist/checksums.txt"} {
		content, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(content)) {
			// The manifest of a chart has the time of the push, and only a signed release has a key.
			if !strings.Contains(line, "/charts/") && !strings.HasSuffix(line, " cosign.pub\n") {
				all = append(all, line)
			}
		}
	}
	return all
}

// copyTree copies the files of the repository into another folder.
func copyTree(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	c := exec.CommandContext(t.Context(), "sh", "-ec", `
		git ls-files -coz --exclude-standard | tar --null -T - -cf - | tar -xf - -C "$1"
		mkdir -p "$1/out" && ln -s "$PWD/out/bin" "$1/out/bin"`, "sh", dir)
	c.Dir = root
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("copying the sources: %v: %s", err, out)
	}
	return dir
}
