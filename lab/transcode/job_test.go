package transcode

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

// TestJob checks what the agent reads: two pods of equal requests, one of them with the weight.
func TestJob(t *testing.T) {
	run := &transcoding{
		cfg: Config{Image: DefaultImage, Seconds: 5}, threads: 2,
		node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}},
	}
	for weighted, want := range map[bool]int64{true: weightedShares, false: 0} {
		pod := run.job("x", weighted)
		pod.UID = "6016fc45-0a1b-4c2d-8e3f-123456789abc"
		pod.Status.QOSClass = corev1.PodQOSBurstable
		got, ok := kube.Pod(pod, "")
		if !ok || got.Annotations.Shares != want || got.RequestMilli != requestMilli ||
			got.QoS != model.Burstable || len(got.Annotations.Notices) > 0 {
			t.Errorf("weighted %v: %+v", weighted, got)
		}
		for _, c := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
			if len(c.Resources.Limits) > 0 {
				t.Errorf("limits %v", c.Resources.Limits)
			}
		}
	}
}

// script runs job.sh in a directory as a pod would, with an ffmpeg that sleeps for half a second. By its date, the
// script begins in the second before 101, however slow the machine is.
func script(t *testing.T, dir string, start int) (string, error) {
	t.Helper()
	for name, content := range map[string]string{
		"bin/date": "#!/bin/sh\nif [ -e asked ]; then echo 101; else echo 100; fi\n: >asked\n",
		"bin/ffmpeg": "#!/bin/sh\n" +
			"printf 'frame=7\\nprogress=continue\\nframe=125\\nprogress=end\\n' >progress\nsleep 0.5\n",
		"start": fmt.Sprint(start),
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	c := exec.Command("sh", "-c", jobScript)
	c.Dir = dir
	c.Env = []string{
		"PATH=" + filepath.Join(dir, "bin") + ":" + os.Getenv("PATH"), "MEDIA_SECONDS=5", "THREADS=2", "REPORT=report",
	}
	out, err := c.CombinedOutput()
	return string(out), err
}

func TestScript(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	before := uptime(t)
	if out, err := script(t, dir, 102); err != nil { // in a second
		t.Fatalf("%v: %s", err, out)
	}
	after := uptime(t) - before
	text, err := os.ReadFile(filepath.Join(dir, "report"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := parseReport(string(text))
	if err != nil {
		t.Fatal(err)
	}
	if got.frames != 125 || got.took < 450*time.Millisecond || got.took > after-time.Second {
		t.Errorf("%+v; with a second before the start, the script took %v", got, after)
	}
}

// uptime returns the time since the boot, by the clock that the script reads.
func uptime(t *testing.T) time.Duration {
	t.Helper()
	text, err := os.ReadFile("/proc/uptime")
	if err != nil {
		t.Fatal(err)
	}
	up, err := time.ParseDuration(strings.Fields(string(text))[0] + "s")
	if err != nil {
		t.Fatal(err)
	}
	return up
}

func TestScriptTooLate(t *testing.T) {
	t.Parallel()
	if out, err := script(t, t.TempDir(), 101); err == nil || !strings.Contains(out, "too late") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestSize checks that the jobs want four times the node's CPUs, whatever its size.
func TestSize(t *testing.T) {
	for cpus, want := range map[float64][2]int{
		0.5: {1, 4}, 1: {1, 4}, 2: {2, 4}, 3.92: {4, 4}, 16: {16, 4}, 31.85: {16, 8}, 64: {16, 16}, 256: {16, 64},
	} {
		threads, jobs := size(cpus)
		if threads != want[0] || jobs != want[1] {
			t.Errorf("%v CPUs: %d threads and %d jobs, not %v", cpus, threads, jobs, want)
		}
	}
}
