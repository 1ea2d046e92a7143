package transcode

import (
	_ "embed"
	"math"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
)

const (
	requestMilli    = 100 // CPU request of each job
	framesPerSecond = 25  // of media
)

//go:embed clip.sh
var clipScript string

//go:embed job.sh
var jobScript string

// job returns the pod of one job. Weighted and plain jobs differ in one annotation only.
func (t *transcoding) job(name string, weighted bool) *corev1.Pod {
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
			// The strictest of the Pod Security Standards allows this.
			SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: &no,
				Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			},
		}
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels(), Annotations: map[string]string{}},
		Spec: corev1.PodSpec{
			Affinity:                      &corev1.Affinity{NodeAffinity: onNode(t.node.Name)},
			RestartPolicy:                 corev1.RestartPolicyNever,
			TerminationGracePeriodSeconds: &second,
			AutomountServiceAccountToken:  &no,
			EnableServiceLinks:            &no,
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: &yes, RunAsUser: &nobody, FSGroup: &nobody,
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			InitContainers: []corev1.Container{container("clip", clipScript)},
			Containers:     []corev1.Container{container("job", jobScript)},
			Volumes: []corev1.Volume{
				{Name: "work", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			},
		},
	}
	if weighted {
		pod.Annotations[v1alpha1.AnnotationCPUShare] = strconv.Itoa(weightedShares)
	}
	return pod
}

// onNode binds a pod to a node through the scheduler, which reports a node without room for the job.
func onNode(name string) *corev1.NodeAffinity {
	return &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
			{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{name}},
		}}},
	}}
}

// labels returns the labels of everything that the experiment makes.
func labels() map[string]string {
	return map[string]string{v1alpha1.LabelExperiment: Name}
}

// maxThreads is the most threads of which x264 makes good use with a picture of this size.
const maxThreads = 16

// size returns the number of threads of each job's encoder on a number of CPUs, and the number of jobs, which is even.
// Together they want four times as much CPU as there is, so the weighted half alone can use all of it.
func size(cpus float64) (threads, jobs int) {
	threads = max(min(int(math.Ceil(cpus)), maxThreads), 1)
	return threads, 2 * max(int(math.Ceil(2*cpus/float64(threads))), 2)
}
