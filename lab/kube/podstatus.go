package kube

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Running reports whether the container of a pod runs.
func Running(p *corev1.Pod) bool {
	return len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].State.Running != nil
}

// Ended returns how the container of a pod ended, once it has.
func Ended(p *corev1.Pod) (*corev1.ContainerStateTerminated, bool) {
	if len(p.Status.ContainerStatuses) != 1 {
		return nil, false
	}
	state := p.Status.ContainerStatuses[0].State.Terminated
	return state, state != nil
}

// Trouble returns an error if a pod will not do its work, with what can be done about that; nil if it still may. The
// needs are the programs that its image must have.
func Trouble(p *corev1.Pod, needs string) error {
	if p.DeletionTimestamp != nil {
		return fmt.Errorf("another client is deleting pod %s", p.Name)
	}
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if w := s.State.Waiting; w != nil {
			switch w.Reason {
			case "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ErrImagePull":
				return fmt.Errorf("image %s is not on the node and could not be pulled; --image names another, with %s: %s",
					s.Image, needs, w.Message)
			case "CreateContainerConfigError", "CreateContainerError", "RunContainerError":
				return fmt.Errorf("pod %s, container %s: %s: %s", p.Name, s.Name, w.Reason, w.Message)
			}
		}
		end := s.State.Terminated
		switch {
		case end == nil || end.ExitCode == 0:
		case end.Reason == "StartError" || end.Reason == "ContainerCannotRun" || end.ExitCode == 127: // 127: no such program
			return fmt.Errorf("container %s of pod %s ended with code %d; --image takes an image with %s: %s",
				s.Name, p.Name, end.ExitCode, needs, end.Message)
		default:
			return fmt.Errorf("container %s of pod %s ended with code %d (%s): %s",
				s.Name, p.Name, end.ExitCode, end.Reason, end.Message)
		}
	}
	if p.Status.Phase == corev1.PodFailed {
		return fmt.Errorf("pod %s failed: %s: %s", p.Name, p.Status.Reason, p.Status.Message)
	}
	return nil
}

// Pending returns what a pod waits for that does not run yet.
func Pending(p *corev1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return "the scheduler finds no node for it: " + c.Message
		}
	}
	for _, s := range p.Status.InitContainerStatuses {
		switch {
		case s.State.Waiting != nil:
			return s.State.Waiting.Reason + " " + s.State.Waiting.Message
		case s.State.Running != nil:
			return "its container " + s.Name + " still runs"
		}
	}
	return "the kubelet has not started it"
}
