package e2e_test

import (
	"encoding/json"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/test/bed/cluster"
)

// testSize runs pods that print their environment and their downward volume, with the label of batch and without it.
// Both print the same, so the webhook computes as this kubelet does. The second pair has limits of the pod as a whole.
func (n *node) testSize() {
	n.sold(false, "the node has an offer", func(free int64) bool { return free >= 1000 })
	n.sub("Containers", func(n *node) { n.sizes("size", nil) })
	if oldKubelet(n.t) {
		return
	}
	n.sub("Pod", func(n *node) {
		n.sizes("whole", corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("300m"), corev1.ResourceMemory: resource.MustParse("512Mi"),
		})
	})
}

// sizes runs one pair of pods, with limits of the pod as a whole unless there are none.
func (n *node) sizes(name string, whole corev1.ResourceList) {
	batch, online := n.prints(name+"-be", "BE", whole), n.prints(name+"-ls", "LS", whole)
	pod := object[corev1.Pod](n.t, "pod", name+"-be")
	if is := requestsOf(&pod); is != "first(batch-cpu=100 batch-memory=33554432) "+
		"c(batch-cpu=100 batch-memory=67108864) free(batch-cpu=30 batch-memory=16777216)" {
		n.t.Errorf("it is no batch pod: %s", is)
	}
	if with, without := alike(batch, whole != nil), alike(online, whole != nil); with != without {
		n.t.Errorf("with the label, the pod prints\n%sand without it\n%s", with, without)
	}
	want := []string{
		"V_c_limits_memory=268435456", "V_c_limits_cpu=1", "V_c_limits_cpu_1m=150", "V_c_requests_cpu_1m=100",
		"V_c_requests_memory_1Mi=64", "V_first_limits_cpu_1m=250", "/size/c_limits_memory 268435456 400",
		"/size/c_limits_cpu 1 400", "/size/c_limits_cpu_1m 150 400", "score 1000",
	}
	if whole != nil {
		want = append(want, "/size/free_limits_memory 536870912 400")
	}
	for _, line := range want {
		if !strings.Contains(batch, line+"\n") {
			n.t.Errorf("the pod does not print %q but\n%s", line, batch)
		}
	}
	n.seen(name + "-be")
}

// alike returns the lines that do not depend on the label. The kubelet gives a container without a limit that of the
// pod as a whole, in the environment only.
func alike(printed string, whole bool) string {
	var same strings.Builder
	for line := range strings.Lines(printed) {
		if !strings.HasPrefix(line, "score ") && !(whole && strings.HasPrefix(line, "/size/free_limits_")) {
			same.WriteString(line)
		}
	}
	return same.String()
}

// seen checks what others find at a batch pod that runs: docs/size.md has the table.
func (n *node) seen(name string) {
	pod := object[corev1.Pod](n.t, "pod", name)
	if class := pod.Status.QOSClass; class != corev1.PodQOSBestEffort {
		n.t.Errorf("its class is %s", class)
	}
	if !oldKubelet(n.t) {
		n.resourcesSeen(&pod)
	}
	text := kubectl(n.t, "describe", "node", n.name)
	_, allocated, _ := strings.Cut(text, "Allocated resources:")
	_, pods, _ := strings.Cut(text, "Non-terminated Pods:")
	nothing := regexp.MustCompile(`\s` + name + `\s+0 \(0%\)\s+0 \(0%\)\s+0 \(0%\)\s+0 \(0%\)`)
	if !strings.Contains(allocated, v1alpha1.ResourceBatchCPU) || !nothing.MatchString(pods) {
		n.t.Errorf("the node is described as\n%s", text)
	}
	used := regexp.MustCompile(`container_memory_working_set_bytes\{container="c",[^}]*pod="` + name + `"\} [1-9]`)
	eventually(n.t, "the kubelet counts what "+name+" uses", func() (bool, string) {
		usage := kubectl(n.t, "get", "--raw", "/api/v1/nodes/"+n.name+"/proxy/metrics/resource")
		return used.MatchString(usage), usage
	})
}

// resourcesSeen checks the resources in the status of a batch pod.
func (n *node) resourcesSeen(pod *corev1.Pod) {
	if r := pod.Status.Resources; r == nil || len(r.Requests) != 2 || len(r.Limits) != 2 ||
		r.Requests.Name(v1alpha1.ResourceBatchCPU, resource.DecimalSI).Value() != 130 {
		n.t.Errorf("the status of the pod has %+v", r)
	}
	for _, s := range pod.Status.ContainerStatuses {
		if s.Resources == nil {
			n.t.Errorf("the status of %s has no resources", s.Name)
		} else if _, found := s.Resources.Requests[v1alpha1.ResourceBatchCPU]; !found ||
			len(s.Resources.Requests) != 2 || len(s.Resources.Limits) != 2 {
			n.t.Errorf("the status of %s has %v", s.Name, s.Resources)
		}
	}
}

// prints runs a pod that prints all its requests and limits, as variables and as files, and returns what it prints. Its
// container free has no limit of CPU, and if the pod has limits as a whole, none of memory.
func (n *node) prints(name, class string, whole corev1.ResourceList) (printed string) {
	n.t.Helper()
	manifest, err := json.Marshal(n.sized(name, class, whole))
	if err != nil {
		n.t.Fatal(err)
	}
	apply(n.t, string(manifest))
	kubectl(n.t, "wait", "--for=condition=Ready", "pod/"+name, ready)
	for _, container := range []string{"first", "c"} {
		log := ""
		eventually(n.t, container+" of "+name+" has printed all", func() (bool, string) {
			log = kubectl(n.t, "logs", name, "-c", container)
			return strings.HasSuffix(log, "end"), log
		})
		printed += log + "\n"
	}
	return printed
}

// sized returns the pod of [node.prints].
func (n *node) sized(name, class string, whole corev1.ResourceList) *corev1.Pod {
	amounts := func(cpu, memory string) corev1.ResourceList {
		list := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memory)}
		if cpu != "" {
			list[corev1.ResourceCPU] = resource.MustParse(cpu)
		}
		return list
	}
	first := corev1.Container{Name: "first", Resources: corev1.ResourceRequirements{
		Requests: amounts("100m", "32Mi"), Limits: amounts("250m", "48Mi"),
	}}
	c := corev1.Container{Name: "c", Resources: corev1.ResourceRequirements{
		Requests: amounts("100m", "64Mi"), Limits: amounts("150m", "256Mi"),
	}}
	free := corev1.Container{Name: "free", Resources: corev1.ResourceRequirements{
		Requests: amounts("30m", "16Mi"), Limits: amounts("", "16Mi"),
	}}
	pod := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.LabelQoS: class}},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{corev1.LabelHostname: n.name}, TerminationGracePeriodSeconds: new(int64(1)),
		},
	}
	if whole != nil {
		free.Resources.Limits, pod.Spec.Resources = nil, &corev1.ResourceRequirements{Limits: whole}
	}
	var items []corev1.DownwardAPIVolumeFile
	for _, of := range []string{"first", "c", "free"} {
		for _, what := range []string{"limits.cpu", "requests.cpu", "limits.memory", "requests.memory"} {
			divisor := "1Mi"
			if strings.HasSuffix(what, "cpu") {
				divisor = "1m"
			}
			for suffix, by := range map[string]resource.Quantity{"": {}, "_" + divisor: resource.MustParse(divisor)} {
				ref := &corev1.ResourceFieldSelector{ContainerName: of, Resource: what, Divisor: by}
				key := of + "_" + strings.ReplaceAll(what, ".", "_") + suffix
				c.Env = append(c.Env, corev1.EnvVar{Name: "V_" + key, ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: ref}})
				items = append(items, corev1.DownwardAPIVolumeFile{Path: key, ResourceFieldRef: ref, Mode: new(int32(0o400))})
			}
		}
	}
	first.Env = c.Env
	c.VolumeMounts = []corev1.VolumeMount{{Name: "size", MountPath: "/size"}}
	pod.Spec.Volumes = []corev1.Volume{{Name: "size", VolumeSource: corev1.VolumeSource{
		DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: items},
	}}}
	const environment = "env | grep ^V_ | sort; "
	for container, script := range map[*corev1.Container]string{
		&first: environment + "echo end",
		&c: environment + "echo score $(cat /proc/self/oom_score_adj); " +
			"for f in /size/*; do echo $f $(cat $f) $(stat -L -c %a $f); done; echo end; sleep 1000000",
		&free: "sleep 1000000",
	} {
		container.Image, container.ImagePullPolicy = cluster.BusyboxImage, corev1.PullNever
		container.Command = []string{"sh", "-c", script}
	}
	pod.Spec.InitContainers, pod.Spec.Containers = []corev1.Container{first}, []corev1.Container{c, free}
	return pod
}
