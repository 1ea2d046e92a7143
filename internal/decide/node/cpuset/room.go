package cpuset

import (
	"slices"

	"github.com/waterline-io/waterline/internal/model"
)

// Grants reports whether a policy lets pods have their own CPUs: the annotation or a class by a privilege, or a rule
// for pods. Only then must the room for such pods be known while no pod requests any.
func Grants(p *model.Policy) bool {
	if p.Mode != model.ModeEnforce {
		return false // the lists are not written
	}
	own := func(what model.Privilege) bool {
		switch what {
		case model.PrivilegeShareCPUs, model.PrivilegeExclusiveCPUs, model.PrivilegeLSE, model.PrivilegeLSR:
			return true
		}
		return false
	}
	return slices.ContainsFunc(p.Privileges, func(rule model.PrivilegeRule) bool {
		return slices.ContainsFunc(rule.Allow, own)
	}) || slices.ContainsFunc(p.Pods, func(rule model.PodRule) bool {
		return rule.CPUs != "" && rule.CPUs != model.CPUNone
	})
}

// idle returns the room of a node on which no pod requests CPUs; nil if it is not known, or not needed.
func (r *round) idle() *model.CPURoom {
	if !Grants(r.p) || r.n.Topology == nil || r.n.Tree.NoCpusets {
		return nil
	}
	r.survey()
	return r.room()
}

// room returns the CPUs that the next pod can get. Under policy static the kubelet's pool may just be unknown, as after
// each start of a container; then the last known pool counts.
func (r *round) room() *model.CPURoom {
	k := &r.n.Kubelet
	if !Grants(r.p) || !k.Known || k.StaticCPUs && k.AllocatableCPUs.Empty() {
		return nil
	}
	free := r.free.Minus(r.exclusive)
	return &model.CPURoom{
		Free: free, Exclusive: max(0, min(free.Len(), r.pool.Minus(r.exclusive).Len()-1)), Topology: r.n.Topology,
	}
}
