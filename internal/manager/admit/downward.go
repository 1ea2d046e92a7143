package admit

import (
	"cmp"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/waterline-io/waterline/api/v1alpha1"
)

// resolve replaces references of the downward API to CPU and memory by the values that the pod came with. The kubelet
// looks for native requests and limits, of which a batch pod has none: it would show 0 for a request, and for a limit
// all that its node can allocate.
//
// A variable of the environment gets its value at once. An item of a volume has no field for a value, so it refers to
// an annotation that has it.
func (m *mutation) resolve(came v1alpha1.BatchResources) {
	var names []string
	for _, c := range containers(m.pod) {
		names = append(names, c.Name)
	}
	value := func(ref *corev1.ResourceFieldSelector, own string) string {
		name := cmp.Or(ref.ContainerName, own)
		if !slices.Contains(names, name) {
			return "" // the kubelet reports it
		}
		return shown(ref, came.Containers[name], came.Pod)
	}
	for _, c := range containers(m.pod) {
		for i := range c.Env {
			ref := reference(&c.Env[i])
			if ref == nil {
				continue
			}
			if v := value(ref, c.Name); v != "" {
				c.Env[i].Value, c.Env[i].ValueFrom = v, nil
				m.out.Changed = true
			}
		}
	}
	for _, source := range downwardSources(m.pod) {
		for i := range source.items {
			item := &source.items[i]
			if item.ResourceFieldRef == nil || item.FieldRef != nil {
				continue
			}
			if v := value(item.ResourceFieldRef, ""); v != "" {
				key := v1alpha1.AnnotationDownward + v
				m.setAnnotation(key, v)
				item.ResourceFieldRef = nil
				item.FieldRef = &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.annotations['" + key + "']"}
				m.out.Changed = true
			}
		}
	}
}

// reference returns the reference of a variable, nil without one. A variable with another source or a value beside it
// has none, because the API server refuses it.
func reference(e *corev1.EnvVar) *corev1.ResourceFieldSelector {
	if e.Value != "" || e.ValueFrom == nil {
		return nil
	}
	ref := e.ValueFrom.ResourceFieldRef
	if *e.ValueFrom != (corev1.EnvVarSource{ResourceFieldRef: ref}) {
		return nil
	}
	return ref
}

// downwardSource is a list of items of the downward API in a volume.
type downwardSource struct {
	path  string // in the pod, as a JSON pointer
	items []corev1.DownwardAPIVolumeFile
}

// downwardSources lists the items of all volumes, which are the pod's own.
func downwardSources(pod *corev1.Pod) []downwardSource {
	var all []downwardSource
	for i := range pod.Spec.Volumes {
		v, path := &pod.Spec.Volumes[i], "/spec/volumes/"+strconv.Itoa(i)
		if v.DownwardAPI != nil {
			all = append(all, downwardSource{path + "/downwardAPI/items", v.DownwardAPI.Items})
		}
		if v.Projected == nil {
			continue
		}
		for j := range v.Projected.Sources {
			if from := v.Projected.Sources[j].DownwardAPI; from != nil {
				path := path + "/projected/sources/" + strconv.Itoa(j) + "/downwardAPI/items"
				all = append(all, downwardSource{path, from.Items})
			}
		}
	}
	return all
}

// shown returns the value of a reference to CPU or memory, as the kubelet computes it: the amount divided by the
// divisor, rounded up. It returns "" where the kubelet's own answer is right: for other resources, and for a container
// without such a request or limit, where it is 0 or what the node can allocate. A divisor that the API server refuses
// stays, too.
//
// A container without a limit of its own has that of the pod as a whole. Without either, the node limits its memory to
// its request ([v1alpha1.RequestedResources]), so that is its limit; its CPU has none.
func shown(ref *corev1.ResourceFieldSelector, container, pod v1alpha1.RequestedResources) string {
	for _, k := range kinds {
		request := *of(&container.Request, k)
		limit := cmp.Or(*of(&container.Limit, k), *of(&pod.Limit, k))
		if k == memory {
			limit = cmp.Or(limit, request)
		}
		unit := k.divisor(ref.Divisor)
		for which, amount := range map[string]int64{"requests.": request, "limits.": limit} {
			if ref.Resource == which+string(k.native()) && amount > 0 && unit > 0 {
				return strconv.FormatInt((amount-1)/unit+1, 10)
			}
		}
	}
	return ""
}

// divisors are those that the API server accepts (k8s.io/kubernetes/pkg/apis/core/validation/validation.go,
// validateContainerResourceDivisor).
var divisors = [2][]string{
	cpu:    {"1m", "1"},
	memory: {"1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"},
}

// divisor returns a divisor in milli-cores or bytes, 0 for one that the API server refuses. Zero counts as one.
func (k kind) divisor(q resource.Quantity) int64 {
	if q.IsZero() {
		q = *resource.NewQuantity(1, k.format())
	}
	switch {
	case !slices.Contains(divisors[k], q.String()):
		return 0
	case k == cpu:
		return q.MilliValue()
	}
	return q.Value()
}
