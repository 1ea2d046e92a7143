package admit

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

// classes are PriorityClasses whose names imply a tier. A pod has such a class and no priority only if no Priority
// plugin ran before.
var classes = map[string]model.Tier{
	v1alpha1.PriorityClassMid:   model.TierMid,
	v1alpha1.PriorityClassBatch: model.TierBatch,
	"koord-mid":                 model.TierMid,
	"koord-batch":               model.TierBatch,
}

// setPriority gives the pod the priority of a tier, unless it has one in a band of batch, and returns its tier. The
// pod's own fields take precedence over the wanted tier: its priority, then the resources that it requests. The agent
// derives the tier from the priority too.
//
// A class outside of the bands is replaced: with a higher priority a batch pod could preempt online pods, which the
// author of the label BE did not mean. Only the name is set. The API server's plugin Priority ran before the webhook
// and, because the pod was changed, runs again: it fills in priority and preemptionPolicy from the class, and refuses
// the pod if they have other values. So both are cleared, and the class may have values that this code does not know.
func (m *mutation) setPriority(wanted model.Tier) model.Tier {
	spec := &m.pod.Spec
	if tier := band(spec.Priority); tier != "" {
		return tier
	}
	if tier := classes[spec.PriorityClassName]; tier != "" {
		return tier
	}
	if tier := requestedTier(m.pod); tier != "" {
		wanted = tier
	}
	name := v1alpha1.PriorityClassBatch
	if wanted == model.TierMid {
		name = v1alpha1.PriorityClassMid
	} else {
		wanted = model.TierBatch
	}
	if spec.PriorityClassName != "" {
		const batch, mid, last = v1alpha1.PriorityBatch, v1alpha1.PriorityMid, v1alpha1.PriorityBand - 1
		m.warn("priorityClassName: %q is not for batch, and %s is used; "+
			"name a class from %d to %d or from %d to %d, or none",
			kube.Excerpt(spec.PriorityClassName), name, batch, batch+last, mid, mid+last)
	}
	spec.PriorityClassName, spec.Priority, spec.PreemptionPolicy = name, nil, nil
	m.out.Changed = true
	return wanted
}

// band returns the tier of a priority's band, "" for none.
func band(priority *int32) model.Tier {
	within := func(from int32) bool { return *priority >= from && *priority < from+v1alpha1.PriorityBand }
	switch {
	case priority == nil:
		return ""
	case within(v1alpha1.PriorityMid):
		return model.TierMid
	case within(v1alpha1.PriorityBatch):
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
