package admit

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/test/fixture"
)

// allocatable are the resources of a node.
var allocatable = corev1.ResourceList{
	corev1.ResourceCPU: resource.MustParse("63500m"), corev1.ResourceMemory: resource.MustParse("400Gi"),
}

// kubelet returns what the kubelet of Kubernetes 1.36 shows for a reference in the environment: the container's
// request or limit. A container without a limit has the pod's, or the node's. An error is "".
func kubelet(pod *corev1.Pod, own string, ref *corev1.ResourceFieldSelector, node corev1.ResourceList) string {
	for _, c := range containers(pod) {
		if c.Name != cmp.Or(ref.ContainerName, own) {
			continue
		}
		which, name, _ := strings.Cut(ref.Resource, ".")
		lists := []corev1.ResourceList{c.Resources.Requests}
		if which == "limits" {
			lists = []corev1.ResourceList{c.Resources.Limits, nil, node}
			if pod.Spec.Resources != nil {
				lists[1] = pod.Spec.Resources.Limits
			}
		}
		var amount resource.Quantity
		for _, list := range lists {
			if amount.IsZero() {
				amount = list[corev1.ResourceName(name)]
			}
		}
		divisor := ref.Divisor
		if divisor.IsZero() {
			divisor = resource.MustParse("1")
		}
		ratio := float64(amount.Value()) / float64(divisor.Value())
		if name == "cpu" {
			ratio = float64(amount.MilliValue()) / float64(divisor.MilliValue())
		}
		return strconv.FormatFloat(math.Ceil(ratio), 'f', 0, 64)
	}
	return ""
}

// variable returns what a container finds in a variable of its environment.
func variable(pod *corev1.Pod, c *corev1.Container, i int) string {
	if e := &c.Env[i]; e.ValueFrom != nil {
		return kubelet(pod, c.Name, e.ValueFrom.ResourceFieldRef, allocatable)
	}
	return c.Env[i].Value
}

// file returns the content of a file of a volume.
func file(pod *corev1.Pod, item *corev1.DownwardAPIVolumeFile) string {
	if item.FieldRef == nil {
		return kubelet(pod, "", item.ResourceFieldRef, allocatable)
	}
	_, key, _ := strings.Cut(item.FieldRef.FieldPath, "metadata.annotations['")
	return pod.Annotations[strings.TrimSuffix(key, "']")]
}

// refer adds references to a pod: to each amount of each container, with some divisor, from that container, from the
// first one and from volumes.
func refer(r *rand.Rand, pod *corev1.Pod) {
	var items []corev1.DownwardAPIVolumeFile
	all := containers(pod)
	for _, c := range all {
		for _, k := range kinds {
			for _, which := range []string{"requests.", "limits."} {
				ref := corev1.ResourceFieldSelector{ContainerName: c.Name, Resource: which + string(k.native())}
				if i := r.IntN(1 + len(divisors[k])); i > 0 {
					ref.Divisor = resource.MustParse(divisors[k][i-1])
				}
				from := func(c *corev1.Container, ref corev1.ResourceFieldSelector) {
					c.Env = append(c.Env, corev1.EnvVar{
						Name: fmt.Sprint("V", len(c.Env)), ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &ref},
					})
				}
				from(all[0], ref)
				items = append(items, corev1.DownwardAPIVolumeFile{Path: fmt.Sprint(len(items)), ResourceFieldRef: ref.DeepCopy()})
				ref.ContainerName = ""
				from(c, ref)
			}
		}
	}
	half := len(items) / 2
	pod.Spec.Volumes = []corev1.Volume{
		{Name: "a", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		{Name: "b", VolumeSource: corev1.VolumeSource{
			DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: items[:half]},
		}},
		{Name: "c", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			Sources: []corev1.VolumeProjection{{}, {
				DownwardAPI: &corev1.DownwardAPIProjection{Items: items[half:]},
			}},
		}}},
	}
}

// TestDownwardProperties checks that the containers of random batch pods find what they would find without the label.
// There is one exception: memory without a limit is limited to its request. The parts that containers get of requests
// of the pod as a whole are left out here.
func TestDownwardProperties(t *testing.T) {
	r := rand.New(rand.NewPCG(33, 4))
	met := map[string]int{}
	rules := Rules{Ours: true}
	for i := range fixture.Times(1000) {
		pod := randomPod(r)
		pod.Labels = map[string]string{v1alpha1.LabelQoS: "BE"}
		refer(r, pod)
		fill(pod)
		after, o := rules.Mutate(pod, nil)
		if o.Why != ByLabel {
			continue
		}
		check(t, pod, after, o, rules)
		if _, again := rules.Mutate(after, nil); again.Changed {
			t.Error("a second call changes the pod")
		}
		expect := func(where, own, got string, ref *corev1.ResourceFieldSelector) {
			want := kubelet(pod, own, ref, allocatable)
			request := *ref
			request.Resource = "requests." + strings.TrimPrefix(ref.Resource, "limits.")
			limited := strings.HasPrefix(ref.Resource, "limits.") && kubelet(pod, own, ref, nil) != "0"
			switch requested := kubelet(pod, own, &request, nil); {
			case !limited && pod.Spec.Resources != nil:
				return
			case !limited && ref.Resource == "limits.memory" && requested != "0":
				met["limited to the request"]++
				want = requested
			}
			met[ref.Resource]++
			if got != want {
				t.Errorf("%s: %s of %q divided by %s is %s, want %s", where, ref.Resource, ref.ContainerName, &ref.Divisor,
					got, want)
			}
		}
		is, now := containers(after), downwardSources(after)
		for j, c := range containers(pod) {
			for k := range c.Env {
				expect("container "+c.Name, c.Name, variable(after, is[j], k), c.Env[k].ValueFrom.ResourceFieldRef)
			}
		}
		for j, source := range downwardSources(pod) {
			for k := range source.items {
				expect(source.path, "", file(after, &now[j].items[k]), source.items[k].ResourceFieldRef)
			}
		}
		if t.Failed() {
			t.Fatalf("pod %d: %+v", i, pod)
		}
	}
	for _, what := range []string{"limited to the request", "requests.cpu", "requests.memory", "limits.cpu",
		"limits.memory"} {
		if met[what] < fixture.Times(500) {
			t.Errorf("%s was met %d times: %v", what, met[what], met)
		}
	}
}
