package admit

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

// setPriority gives the pod a priority of batch, unless it has one, and returns its tier. The pod's own fields take
// precedence over the wanted tier: its priority, then the resources that it requests. The agent derives the tier from
// the priority too.
//
// A priority of 0 or more is replaced, because online pods without a class have 0: such a batch pod could preempt them,
// and would outlive them when the kubelet evicts, which the author of the label BE did not mean. Koordinator's
// priorities stay where its resource names are used.
//
// Only the name of the class is set. The API server's plugin Priority ran before the webhook and, because the pod was
// changed, runs again: it fills in priority and preemptionPolicy from the class, and refuses the pod if they have other
// values. So both are cleared, and the class may have values that this code does not know.
func (m *mutation) setPriority(wanted model.Tier, koordinator bool) model.Tier {
	spec := &m.pod.Spec
	own := cmp.Or(tierOfClass(spec.PriorityClassName), kube.TierOf(spec.Priority))
	tier := cmp.Or(own, requestedTier(m.pod), wanted, model.TierBatch)
	if spec.Priority != nil && *spec.Priority < 0 || slices.Contains(BatchClasses(), spec.PriorityClassName) ||
		koordinator && own != "" {
		return tier
	}
	name := v1alpha1.PriorityClassBatch
	if tier == model.TierMid {
		name = v1alpha1.PriorityClassMid
	}
	if spec.PriorityClassName != "" {
		m.warn("priorityClassName: %q is not for batch, and %s is used; name a class with a value below 0, or none",
			kube.Excerpt(spec.PriorityClassName), name)
	}
	spec.PriorityClassName, spec.Priority, spec.PreemptionPolicy = name, nil, nil
	m.out.Changed = true
	return tier
}

// tierOfClass returns the tier that the name of a PriorityClass implies, "" for none. It counts before the priority,
// because the cluster's administrator may have given the class another value.
func tierOfClass(name string) model.Tier {
	switch name {
	case v1alpha1.PriorityClassMid, v1alpha1.PriorityClassKoordinatorMid:
		return model.TierMid
	case v1alpha1.PriorityClassBatch, v1alpha1.PriorityClassKoordinatorBatch:
		return model.TierBatch
	}
	return ""
}

// requestedTier returns the tier whose resources a pod already requests, "" for none. Of both tiers, the safer one
// counts.
func requestedTier(pod *corev1.Pod) model.Tier {
	for _, tier := range []model.Tier{model.TierBatch, model.TierMid} {
		for _, c := range containers(pod) {
			for _, kind := range kinds {
				if _, found := lookup(c.Resources, spellings[tier][kind]...); found {
					return tier
				}
			}
		}
	}
	return ""
}
