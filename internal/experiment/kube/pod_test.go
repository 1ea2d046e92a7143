package kube

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

	"github.com/waterline-io/waterline/internal/experiment"
	"github.com/waterline-io/waterline/internal/model"
	observed "github.com/waterline-io/waterline/internal/observe/kube"
)

// The agent must see two pods of equal requests, of which one asks for the weight and the other for nothing.
func TestJob(t *testing.T) {
	run := &transcode{cfg: Config{Image: DefaultImage, Seconds: 5}, threads: 2, node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}}
	for weighted, want := range map[bool]int64{true: experiment.TranscodeShares, false: 0} {
		pod := run.job("x", weighted)
		pod.UID = "6016fc45-0a1b-4c2d-8e3f-123456789abc"
		pod.Status.QOSClass = corev1.PodQOSBurstable
		got, ok := observed.Pod(pod, "")
		if !ok || got.Annotations.Shares != want || got.RequestMilli != requestMilli || got.QoS != model.Burstable || len(got.Annotations.Notices) > 0 {
			t.Errorf("weighted %v: %+v", weighted, got)
		}
		for _, c := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
			if len(c.Resources.Limits) > 0 {
				t.Errorf("limits %v", c.Resources.Limits)
			}
		}
	}
}

func TestTrouble(t *testing.T) {
	waiting := func(reason, message string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
	}
	terminated := func(code int32, reason, message string) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason, Message: message}}
	}
	for _, tc := range []struct {
		name string
		clip corev1.ContainerState
		job  corev1.ContainerState
		want string // in the error; "": none
	}{
		{"it begins", waiting("PodInitializing", ""), waiting("PodInitializing", ""), ""},
		{"the clip is made", corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}, waiting("PodInitializing", ""), ""},
		{"it works", terminated(0, "Completed", ""), corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}, ""},
		{"done", terminated(0, "Completed", ""), terminated(0, "Completed", "frames 125"), ""},
		{"no image", waiting("ImagePullBackOff", "no such host"), waiting("PodInitializing", ""), "--image names another, with ffmpeg, libx264 and a shell: no such host"},
		{"no shell", terminated(128, "StartError", `exec: "sh": not found`), waiting("PodInitializing", ""), `--image takes an image with ffmpeg, libx264 and a shell: exec: "sh": not found`},
		{"no ffmpeg", terminated(127, "Error", "the image has no ffmpeg in its PATH"), waiting("PodInitializing", ""), "ended with code 127; --image takes an image with ffmpeg, libx264 and a shell: the image has no ffmpeg"},
		{"no memory", terminated(0, "Completed", ""), terminated(137, "OOMKilled", ""), "the job of pod x ended with code 137 (OOMKilled)"},
		{"no container", waiting("CreateContainerConfigError", "runs as root"), waiting("PodInitializing", ""), "CreateContainerConfigError: runs as root"},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Status: corev1.PodStatus{
			InitContainerStatuses: []corev1.ContainerStatus{{Name: "clip", State: tc.clip}},
			ContainerStatuses:     []corev1.ContainerStatus{{Name: "job", State: tc.job}},
		}}
		err := trouble(pod)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
	evicted := &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "The node was low on memory"}}
	if err := trouble(evicted); err == nil || !strings.Contains(err.Error(), "Evicted: The node was low on memory") {
		t.Error(err)
	}
	deleted := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{}}}
	if err := trouble(deleted); err == nil {
		t.Error("a pod that is being deleted is no trouble")
	}
}

func TestPending(t *testing.T) {
	unplaced := &corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/1 nodes are available: 1 Insufficient cpu."},
	}}}
	if got := pending(unplaced); !strings.Contains(got, "Insufficient cpu") {
		t.Error(got)
	}
	if got := pending(&corev1.Pod{}); !strings.Contains(got, "kubelet") {
		t.Error(got)
	}
}

// script runs job.sh in a directory as a pod would, with an ffmpeg that transcodes nothing in half a second.
func script(t *testing.T, dir string, start time.Time) (string, error) {
	t.Helper()
	for name, content := range map[string]string{
		"bin/ffmpeg": "#!/bin/sh\nprintf 'frame=7\\nprogress=continue\\nframe=125\\nprogress=end\\n' >progress\nsleep 0.5\n",
		"start":      fmt.Sprint(start.Unix()),
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
	c.Env = []string{"PATH=" + filepath.Join(dir, "bin") + ":" + os.Getenv("PATH"), "MEDIA_SECONDS=5", "THREADS=2", "REPORT=report"}
	out, err := c.CombinedOutput()
	return string(out), err
}

func TestScript(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	start := time.Unix(time.Now().Unix()+3, 0)
	if out, err := script(t, dir, start); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	after := time.Since(start)
	text, err := os.ReadFile(filepath.Join(dir, "report"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := parseReport(string(text))
	if err != nil {
		t.Fatal(err)
	}
	if got.frames != 125 || got.took < 450*time.Millisecond || got.took > after+50*time.Millisecond {
		t.Errorf("%+v, seen from outside %v", got, after)
	}
}

func TestScriptTooLate(t *testing.T) {
	t.Parallel()
	if out, err := script(t, t.TempDir(), time.Now().Add(-time.Second)); err == nil || !strings.Contains(out, "too late") {
		t.Errorf("%v: %s", err, out)
	}
}
