package kube

import (
	_ "embed"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/experiment"
)

const (
	requestMilli    = 100 // CPU that each job requests
	framesPerSecond = 25  // of media
)

//go:embed clip.sh
var clipScript string

//go:embed job.sh
var jobScript string

// job returns the pod of one job. Those with a weight differ from the others in its annotation and in nothing else.
func (t *transcode) job(name string, weighted bool) *corev1.Pod {
	yes, no, nobody, second := true, false, int64(65534), int64(1)
	container := func(name, script string) corev1.Container {
		return corev1.Container{
			Name: name, Image: t.cfg.Image, ImagePullPolicy: corev1.PullIfNotPresent,
			Command: []string{"sh", "-c", script}, WorkingDir: "/transcode",
			Env: []corev1.EnvVar{
				{Name: "FRAMES_PER_SECOND", Value: strconv.Itoa(framesPerSecond)},
				{Name: "MEDIA_SECONDS", Value: strconv.Itoa(t.cfg.Seconds)},
				{Name: "THREADS", Value: strconv.Itoa(t.threads)},
				{Name: "REPORT", Value: corev1.TerminationMessagePathDefault},
			},
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU: *resource.NewMilliQuantity(requestMilli, resource.DecimalSI),
			}},
			TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
			VolumeMounts:             []corev1.VolumeMount{{Name: "work", MountPath: "/transcode"}},
			// The strictest of the Pod Security Standards lets this run.
			SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: &no,
				Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			},
		}
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels(), Annotations: map[string]string{}},
		Spec: corev1.PodSpec{
			// The scheduler is asked, so that a node that has no room for the job says so.
			Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
					{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{t.node.Name}},
				}}},
			}}},
			RestartPolicy:                 corev1.RestartPolicyNever,
			TerminationGracePeriodSeconds: &second,
			AutomountServiceAccountToken:  &no,
			EnableServiceLinks:            &no,
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: &yes, RunAsUser: &nobody, FSGroup: &nobody, SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			InitContainers: []corev1.Container{container("clip", clipScript)},
			Containers:     []corev1.Container{container("job", jobScript)},
			Volumes: []corev1.Volume{
				{Name: "work", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			},
		},
	}
	if weighted {
		pod.Annotations[v1alpha1.AnnotationCPUShare] = strconv.Itoa(experiment.TranscodeShares)
	}
	return pod
}

// labels are those of everything that the experiment makes.
func labels() map[string]string {
	return map[string]string{v1alpha1.LabelExperiment: experiment.TranscodeName}
}

// running reports whether a pod's job waits for the start, or does what it is there for.
func running(p *corev1.Pod) bool {
	return len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].State.Running != nil
}

// ended returns how a pod's job ended, once it has.
func ended(p *corev1.Pod) (*corev1.ContainerStateTerminated, bool) {
	if len(p.Status.ContainerStatuses) != 1 {
		return nil, false
	}
	state := p.Status.ContainerStatuses[0].State.Terminated
	return state, state != nil
}

// trouble says why a pod will not do its work, and what can be done about that; nil if it still may.
func trouble(p *corev1.Pod) error {
	if p.DeletionTimestamp != nil {
		return fmt.Errorf("pod %s is being deleted by somebody else", p.Name)
	}
	statuses := append(p.Status.InitContainerStatuses[:len(p.Status.InitContainerStatuses):len(p.Status.InitContainerStatuses)], p.Status.ContainerStatuses...)
	for _, s := range statuses {
		if w := s.State.Waiting; w != nil {
			switch w.Reason {
			case "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ErrImagePull":
				return fmt.Errorf("image %s is not on the node and could not be pulled; --image names another, with ffmpeg, libx264 and a shell: %s", s.Image, w.Message)
			case "CreateContainerConfigError", "CreateContainerError", "RunContainerError":
				return fmt.Errorf("pod %s, container %s: %s: %s", p.Name, s.Name, w.Reason, w.Message)
			}
		}
		end := s.State.Terminated
		switch {
		case end == nil || end.ExitCode == 0:
		case s.Name == "clip" && end.Reason == "Error":
			return fmt.Errorf("making a clip in pod %s ended with code %d; --image takes an image with ffmpeg, libx264 and a shell: %s", p.Name, end.ExitCode, end.Message)
		case end.Reason == "StartError" || end.Reason == "ContainerCannotRun":
			return fmt.Errorf("pod %s could not be started; --image takes an image with ffmpeg, libx264 and a shell: %s", p.Name, end.Message)
		default:
			return fmt.Errorf("the job of pod %s ended with code %d (%s): %s", p.Name, end.ExitCode, end.Reason, end.Message)
		}
	}
	if p.Status.Phase == corev1.PodFailed {
		return fmt.Errorf("pod %s failed: %s: %s", p.Name, p.Status.Reason, p.Status.Message)
	}
	return nil
}

// pending says what a pod that does not run yet waits for.
func pending(p *corev1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return "the scheduler finds no place for it: " + c.Message
		}
	}
	for _, s := range p.Status.InitContainerStatuses {
		switch {
		case s.State.Waiting != nil:
			return s.State.Waiting.Reason + " " + s.State.Waiting.Message
		case s.State.Running != nil:
			return "it still makes its clip"
		}
	}
	return "the kubelet has not started it"
}
