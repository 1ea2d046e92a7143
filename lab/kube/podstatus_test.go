package kube

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestTrouble(t *testing.T) {
	waiting := func(reason, message string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
	}
	terminated := func(code int32, reason, message string) corev1.ContainerState {
		return corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason, Message: message},
		}
	}
	initializing := waiting("PodInitializing", "")
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	completed := terminated(0, "Completed", "")
	for _, tc := range []struct {
		name string
		clip corev1.ContainerState
		job  corev1.ContainerState
		want string // in the error; "": none
	}{
		{"begins", initializing, initializing, ""},
		{"makes the clip", running, initializing, ""},
		{"works", completed, running, ""},
		{"done", completed, terminated(0, "Completed", "frames 125"), ""},
		{"no image", waiting("ImagePullBackOff", "no such host"), initializing,
			"--image names another, with ffmpeg: no such host"},
		{"no shell", terminated(128, "StartError", `exec: "sh": not found`), initializing,
			`--image takes an image with ffmpeg: exec: "sh": not found`},
		{"no ffmpeg", terminated(127, "Error", "the image has no ffmpeg in its PATH"), initializing,
			"ended with code 127; --image takes an image with ffmpeg: the image has no ffmpeg"},
		{"no memory", completed, terminated(137, "OOMKilled", ""), "container job of pod x ended with code 137 (OOMKilled)"},
		{"no container", waiting("CreateContainerConfigError", "runs as root"), initializing,
			"CreateContainerConfigError: runs as root"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Status: corev1.PodStatus{
				InitContainerStatuses: []corev1.ContainerStatus{{Name: "clip", State: tc.clip}},
				ContainerStatuses:     []corev1.ContainerStatus{{Name: "job", State: tc.job}},
			}}
			err := Trouble(pod, "ffmpeg")
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Error(err)
			}
		})
	}
	evicted := &corev1.Pod{Status: corev1.PodStatus{
		Phase: corev1.PodFailed, Reason: "Evicted", Message: "The node was low on memory",
	}}
	if err := Trouble(evicted, ""); err == nil || !strings.Contains(err.Error(), "Evicted: The node was low on memory") {
		t.Error(err)
	}
	deleted := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{}}}
	if err := Trouble(deleted, ""); err == nil {
		t.Error("no error for a pod that is being deleted")
	}
}

func TestPending(t *testing.T) {
	unplaced := &corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/1 nodes are available: 1 Insufficient cpu.",
	}}}}
	if got := Pending(unplaced); !strings.Contains(got, "Insufficient cpu") {
		t.Error(got)
	}
	if got := Pending(&corev1.Pod{}); !strings.Contains(got, "kubelet") {
		t.Error(got)
	}
}
