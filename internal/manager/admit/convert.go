package admit

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

// convert turns the requests of the pod into batch resources, and writes the original ones into the annotation, and
// wherever the pod refers to them.
//
// The overhead of a RuntimeClass stays native, because the API server refuses a pod with another overhead than its
// class. So a ResourceQuota and the scheduler still count it, rightly: the sandbox uses it, not the batch work.
func (m *mutation) convert(to names) {
	was, known := m.written()
	original := v1alpha1.BatchResources{Containers: map[string]v1alpha1.RequestedResources{}}
	for _, c := range containers(m.pod) {
		var a v1alpha1.RequestedResources
		for _, kind := range kinds {
			m.container(c, kind, to[kind], was.Containers[c.Name], &a)
		}
		if a != (v1alpha1.RequestedResources{}) {
			original.Containers[c.Name] = a
		}
	}
	m.podLevel(to, was.Pod, &original)
	if known && contradicts(was, original) {
		m.warn("%s: %q differs from the requests of the pod and was replaced; leave it out",
			v1alpha1.AnnotationBatchResources, kube.Excerpt(m.pod.Annotations[v1alpha1.AnnotationBatchResources]))
	}
	text := ""
	if len(original.Containers) > 0 {
		encoded, err := json.Marshal(original)
		if err != nil { // cannot be: maps of strings and integers
			m.warn("%s was not written: %v", v1alpha1.AnnotationBatchResources, err)
		}
		text = string(encoded)
	}
	m.setAnnotation(v1alpha1.AnnotationBatchResources, text)
	m.resolve(original)
}

// container converts one resource of one container. A container that already requests the batch resource keeps that
// request: it was converted before, or its author wrote it, and a native request beside it is a LimitRange's default.
// Under our names the API server demands that limit and request are equal, so such a limit of CPU means nothing. Under
// Koordinator's names the limit may be higher, and then it is one.
func (m *mutation) container(c *corev1.Container, kind kind, to corev1.ResourceName, was v1alpha1.RequestedResources,
	original *v1alpha1.RequestedResources) {
	var request, limit int64
	if own, found := lookup(c.Resources, everySpelling(kind)...); found {
		request, limit = whole(own.request), whole(own.limit)
		if _, ours := lookup(c.Resources, v1alpha1.ResourceBatchCPU, v1alpha1.ResourceMidCPU); ours && kind == cpu {
			limit = 0
		}
		if old := *of(&was.Limit, kind); *of(&was.Request, kind) == request && old >= 0 {
			// The webhook wrote it, or a user who could have requested the same natively, with this limit.
			limit = min(old, maxAmount)
		}
	} else if native, found := lookup(c.Resources, kind.native()); found {
		request, limit = kind.amount(native.request), kind.amount(native.limit)
	} else {
		return
	}
	*of(&original.Request, kind) = request
	*of(&original.Limit, kind) = limit
	m.replace(&c.Resources, kind, to, request)
}

// replace makes a container request an amount of a batch resource, and nothing else of its kind.
func (m *mutation) replace(r *corev1.ResourceRequirements, kind kind, to corev1.ResourceName, amount int64) {
	quantity := resource.NewQuantity(amount, kind.format())
	for _, list := range []*corev1.ResourceList{&r.Requests, &r.Limits} {
		for _, name := range append(everySpelling(kind), kind.native()) {
			if name != to {
				m.remove(list, name)
			}
		}
		if old, found := (*list)[to]; found && old.Cmp(*quantity) == 0 {
			continue
		}
		if *list == nil {
			*list = corev1.ResourceList{}
		}
		(*list)[to] = *quantity
		m.out.Changed = true
	}
}

// remove removes a resource from a list, and the list with the last one.
func (m *mutation) remove(list *corev1.ResourceList, name corev1.ResourceName) {
	if _, found := (*list)[name]; !found {
		return
	}
	delete(*list, name)
	if len(*list) == 0 {
		*list = nil
	}
	m.out.Changed = true
}

// written reads the annotation; known is false without one.
func (m *mutation) written() (was v1alpha1.BatchResources, known bool) {
	text, known := m.pod.Annotations[v1alpha1.AnnotationBatchResources]
	if !known || json.Unmarshal([]byte(text), &was) != nil {
		return v1alpha1.BatchResources{}, known
	}
	return was, true
}

// contradicts reports whether the old annotation differs from the new one about the same containers.
func contradicts(was, original v1alpha1.BatchResources) bool {
	if len(was.Containers) == 0 || was.Pod != original.Pod {
		return true
	}
	for name, a := range was.Containers {
		if original.Containers[name] != a {
			return true
		}
	}
	return false
}

// invalid reports whether the API server refuses the pod for its requests. A conversion to one number must not hide
// that request and limit contradict each other.
func invalid(pod *corev1.Pod) bool {
	var podRequest, podLimit corev1.ResourceList
	if pod.Spec.Resources != nil {
		podRequest, podLimit = pod.Spec.Resources.Requests, pod.Spec.Resources.Limits
		if wrong(*pod.Spec.Resources) || exceeds(aggregate(pod), podRequest) {
			return true
		}
	}
	for _, c := range containers(pod) {
		if wrong(c.Resources) || exceeds(c.Resources.Limits, podLimit) {
			return true
		}
	}
	return false
}

// wrong reports whether an amount is negative or a request above its limit.
func wrong(r corev1.ResourceRequirements) bool {
	for _, kind := range kinds {
		for _, name := range append(everySpelling(kind), kind.native()) {
			request, limit := r.Requests[name], r.Limits[name]
			_, limited := r.Limits[name]
			if request.Sign() < 0 || limit.Sign() < 0 || limited && request.Cmp(limit) > 0 {
				return true
			}
		}
	}
	return false
}

// exceeds reports whether CPU or memory of a list is above that of another, where the other has any.
func exceeds(list, most corev1.ResourceList) bool {
	for _, kind := range kinds {
		bound, bounded := most[kind.native()]
		amount := list[kind.native()]
		if bounded && amount.Cmp(bound) > 0 {
			return true
		}
	}
	return false
}
