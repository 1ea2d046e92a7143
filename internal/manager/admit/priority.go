package admit

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
)

// classes are PriorityClasses whose tier is known by their name. A pod has one of them without a number only where no
// Priority plugin ran before us.
var classes = map[string]model.Tier{
	v1alpha1.PriorityClassMid:   model.TierMid,
	v1alpha1.PriorityClassBatch: model.TierBatch,
	"koord-mid":                 model.TierMid,
	"koord-batch":               model.TierBatch,
}

// setPriority gives the pod the priority of a tier, unless it has one in a band of batch, and returns its tier. What
// the pod says itself counts before what is wanted for it: its priority, then which resources it asks for. That the
// number decides about the tier is also what the agent does.
//
// A class outside of the bands is replaced: with a higher priority a batch pod could have online pods evicted for it,
// and whoever labelled it as batch meant something else. Only the name is set. The API server's plugin Priority ran
// before us and, because the pod was changed, runs again: it fills in priority and preemptionPolicy from the class, and
// refuses the pod where it finds others there. So both are cleared, and the class is free to have other values than we
// know of.
func (m *mutation) setPriority(wanted model.Tier) model.Tier {
	spec := &m.pod.Spec
	if tier := band(spec.Priority); tier != "" {
		return tier
	}
	if tier := classes[spec.PriorityClassName]; tier != "" {
		return tier
	}
	if tier := askedTier(m.pod); tier != "" {
		wanted = tier
	}
	name := v1alpha1.PriorityClassBatch
	if wanted == model.TierMid {
		name = v1alpha1.PriorityClassMid
	} else {
		wanted = model.TierBatch
	}
	if spec.PriorityClassName != "" {
		m.warn("priorityClassName: %q is not for batch: %s is used; name a class from %d to %d or from %d to %d, or none",
			shorten(spec.PriorityClassName), name,
			v1alpha1.PriorityBatch, v1alpha1.PriorityBatch+v1alpha1.PriorityBand-1, v1alpha1.PriorityMid,
			v1alpha1.PriorityMid+v1alpha1.PriorityBand-1)
	}
	spec.PriorityClassName, spec.Priority, spec.PreemptionPolicy = name, nil, nil
	m.out.Changed = true
	return wanted
}

// band returns the tier in whose band a priority is, "" for none.
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

// askedTier returns the tier whose resources a pod asks for itself, "" for none. The safer one counts where it asks for
// both.
func askedTier(pod *corev1.Pod) model.Tier {
	for _, tier := range []model.Tier{model.TierBatch, model.TierMid} {
		for _, c := range containers(pod) {
			for _, kind := range kinds {
				if _, asked := lookup(c.Resources, spellings[tier][kind]...); asked {
					return tier
				}
			}
		}
	}
	return ""
}

// shorten cuts what a tenant wrote to a length that fits into a warning.
func shorten(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}
