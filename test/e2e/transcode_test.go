package e2e_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/waterline-io/waterline/test/bed/cluster"
)

// ffmpegArchive is large; see run.
const ffmpegArchive = "ffmpeg.tar"

// TestNodeTranscode runs lab transcode like a user who makes a mistake, and who interrupts it. It leaves nothing
// behind.
func TestNodeTranscode(t *testing.T) {
	transcode, nothingLeft := transcoder(t)
	for _, c := range []struct{ option, value, want string }{
		{"--node", "nowhere", "there is no node nowhere: the nodes are " + cluster.NodeName},
		{"--image", cluster.BusyboxImage, "no ffmpeg"},
	} {
		out, err := transcode(c.option, c.value, "--jobs", "2").CombinedOutput()
		if err == nil || !strings.Contains(string(out), c.want) {
			t.Errorf("%s %s: %v: %s", c.option, c.value, err, out)
		}
		nothingLeft("an error")
	}

	interrupted := transcode()
	if err := interrupted.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "pods of the experiment", func() (bool, string) {
		out := kubectl(t, "get", "pods", "-A", "-l", "waterline.io/experiment=transcode", "--field-selector",
			"status.phase=Running", "-o", "name")
		return out != "", out
	})
	if err := interrupted.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := interrupted.Wait(); err == nil {
		t.Error("the interrupted experiment ended with success")
	}
	nothingLeft("an interrupt")
}

// transcoder installs the chart and imports the image, and returns what runs lab transcode and what checks that it left
// no namespace behind. The policy allows its weight only in the namespaces that it makes.
func transcoder(t *testing.T) (transcode func(args ...string) *exec.Cmd, nothingLeft func(after string)) {
	t.Helper()
	if *on == "vm" {
		t.Skip("transcoding in an emulated machine takes many times as long, and proves no more than TestNode there")
	}
	archive := filepath.Join(built, "bed/images", ffmpegArchive)
	if _, err := os.Stat(archive); errors.Is(err, fs.ErrNotExist) {
		const missing = "the image of ffmpeg is not built; run make bed-ffmpeg"
		if os.Getenv("CI") != "" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	install(t, "--set", "policy.weight.max=16384,policy.weight.overrideGuaranteed=true",
		"--set-json", `policy.weight.namespaces=[{"selector": {"matchLabels": {"waterline.io/experiment": "transcode"}}, `+
			`"max": 262144}]`)
	if err := bed.Import(t.Context(), archive); err != nil {
		t.Fatal(err)
	}
	transcode = func(args ...string) *exec.Cmd {
		return exec.Command(filepath.Join(built, "bin/lab"),
			append([]string{"transcode", "--kubeconfig", bed.Kubeconfig(), "--node", cluster.NodeName}, args...)...)
	}
	// The cluster takes some time to delete a namespace.
	nothingLeft = func(after string) {
		t.Helper()
		for _, ns := range object[corev1.NamespaceList](t, "namespaces", "-l", "waterline.io/experiment=transcode").Items {
			if ns.DeletionTimestamp == nil {
				t.Errorf("%s left namespace %s behind", after, ns.Name)
			}
		}
	}
	return transcode, nothingLeft
}
