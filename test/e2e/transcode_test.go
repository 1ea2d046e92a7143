package e2e_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/waterline-io/waterline/test/bed/cluster"
)

// ffmpegArchive is large; see run.
const ffmpegArchive = "ffmpeg.tar"

// TestNodeTranscode runs lab transcode like a user. The policy allows its weight only in the namespaces that it makes.
func TestNodeTranscode(t *testing.T) {
	if *on == "vm" {
		t.Skip("transcoding in an emulated machine takes many times as long, and proves no more than TestNode there")
	}
	if !soak {
		t.Skip("WATERLINE_SOAK is not set: TestNode/Weights shows the weights of pods, TestSchedulerJobs those of ffmpeg")
	}
	archive := filepath.Join(built, "bed/images", ffmpegArchive)
	if _, err := os.Stat(archive); errors.Is(err, fs.ErrNotExist) && os.Getenv("CI") == "" {
		t.Skip("no ffmpeg on this machine when the bed was built")
	}
	install(t, "--set", "policy.weight.max=16384,policy.weight.overrideGuaranteed=true",
		"--set-json", `policy.weight.namespaces=[{"selector": {"matchLabels": {"waterline.io/experiment": "transcode"}}, `+
			`"max": 262144}]`)
	if err := bed.Import(t.Context(), archive); err != nil {
		t.Fatal(err)
	}
	transcode := func(args ...string) *exec.Cmd {
		return exec.Command(filepath.Join(built, "bin/lab"),
			append([]string{"transcode", "--kubeconfig", bed.Kubeconfig(), "--node", cluster.NodeName}, args...)...)
	}
	// The cluster takes some time to delete a namespace.
	nothingLeft := func(after string) {
		t.Helper()
		for _, ns := range object[corev1.NamespaceList](t, "namespaces", "-l", "waterline.io/experiment=transcode").Items {
			if ns.DeletionTimestamp == nil {
				t.Errorf("%s left namespace %s behind", after, ns.Name)
			}
		}
	}

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

	// On a machine that stands still for some seconds, jobs get their start signal too late, or do not run side by side.
	// An error of Waterline occurs every time.
	const tries = 3
	for try := range tries {
		file := filepath.Join(t.TempDir(), "transcode.json")
		start := time.Now()
		out, err := transcode("--seconds", "50", "--json", file).CombinedOutput()
		t.Logf("in %.0f s: %v\n%s", time.Since(start).Seconds(), err, out)
		nothingLeft("a result")
		wrong := fmt.Sprint(err)
		if err == nil {
			wrong = transcoded(t, file)
		}
		switch {
		case wrong == "":
			return
		case try == tries-1:
			t.Error(wrong)
		default:
			t.Log(wrong, "; once more")
		}
	}
}

// transcoded returns the error in a result of lab transcode; "": none.
func transcoded(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var result struct{ Metrics map[string]float64 }
	if err := json.Unmarshal(content, &result); err != nil {
		t.Fatal(err)
	}
	m := result.Metrics
	weighted, plain := m["time_per_media_second_weighted"], m["time_per_media_second_plain"]
	if weighted <= 0 || weighted > 0.84*plain {
		return fmt.Sprintf("a second of media took weighted jobs %v s and the others %v s, want at least 16 %% less",
			weighted, plain)
	}
	if m["weight_seen_shares"] != 262144 {
		return fmt.Sprintf("the kernel had %v shares", m["weight_seen_shares"])
	}
	return ""
}
