package admit

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
)

// podLevel divides the requests of the pod as a whole, less those of its containers, among its containers, because
// batch resources cannot be requested at the level of the pod. The app's containers without a request get equal parts;
// if each has one, those without a limit do; else all do. The remainder of the division goes to the first. So the pod
// requests as much as before.
func (m *mutation) podLevel(to names, was v1alpha1.RequestedResources, original *v1alpha1.BatchResources) {
	for _, kind := range kinds {
		sum := m.sum(kind, to)
		request, limit := *of(&was.Request, kind), *of(&was.Limit, kind)
		if known := request > 0 || limit > 0; known && request >= 0 && limit >= 0 && request <= sum {
			// It was divided before; a container may have been added since.
			*of(&original.Pod.Request, kind) = request
			*of(&original.Pod.Limit, kind) = min(limit, maxAmount)
		} else if m.pod.Spec.Resources == nil {
			continue
		} else if native, found := lookup(*m.pod.Spec.Resources, kind.native()); found {
			request, limit := kind.amount(native.request), kind.amount(native.limit)
			*of(&original.Pod.Request, kind) = request
			*of(&original.Pod.Limit, kind) = limit
			m.share(kind, to, request-sum, original)
		}
	}
	r := m.pod.Spec.Resources
	if r == nil {
		return
	}
	for _, kind := range kinds {
		m.remove(&r.Requests, kind.native())
		m.remove(&r.Limits, kind.native())
	}
	if len(r.Requests) == 0 && len(r.Limits) == 0 && len(r.Claims) == 0 {
		m.pod.Spec.Resources = nil
		m.out.Changed = true
	}
}

// sum returns the sum of the requests of the containers that run side by side.
func (m *mutation) sum(kind kind, to names) int64 {
	var sum int64
	for _, c := range containers(m.pod) {
		if !startsAndEnds(m.pod, c) {
			q := c.Resources.Requests[to[kind]]
			sum += q.Value()
		}
	}
	return sum
}

// share divides an amount among containers. A container's own limit stays as it is, even if its part is more.
func (m *mutation) share(kind kind, to names, rest int64, original *v1alpha1.BatchResources) {
	among := m.sharers(func(c *corev1.Container) bool {
		q := c.Resources.Requests[to[kind]]
		return q.IsZero()
	}, func(c *corev1.Container) bool {
		a := original.Containers[c.Name]
		return *of(&a.Limit, kind) == 0
	})
	n := int64(len(among))
	for i, c := range among {
		part := rest / n
		if int64(i) < rest%n {
			part++
		}
		if part <= 0 {
			continue
		}
		old := c.Resources.Requests[to[kind]]
		m.replace(&c.Resources, kind, to[kind], old.Value()+part)
		a := original.Containers[c.Name]
		*of(&a.Request, kind) = old.Value() + part
		original.Containers[c.Name] = a
	}
}

// sharers returns the app's containers that pass the first of some tests that any of them passes, or all of them.
func (m *mutation) sharers(tests ...func(*corev1.Container) bool) []*corev1.Container {
	var all []*corev1.Container
	for i := range m.pod.Spec.Containers {
		all = append(all, &m.pod.Spec.Containers[i])
	}
	for _, test := range tests {
		some := slices.DeleteFunc(slices.Clone(all), func(c *corev1.Container) bool { return !test(c) })
		if len(some) > 0 {
			return some
		}
	}
	return all
}
