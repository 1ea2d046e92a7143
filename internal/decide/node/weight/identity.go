package weight

import "github.com/waterline-io/waterline/internal/model"

// Group identities of vendor kernels. A task of a group with a higher identity preempts tasks of lower ones on its
// CPU; an online task also evicts batch tasks from the sibling hyperthread. Groups that are neither online nor batch,
// such as the QoS classes, keep 0 (normal).
const (
	identityBatch  = -1
	identityOnline = 2
)

// identify appends the identity settings of a pod and its containers. A new container inherits the identity of its
// pod, but an existing one does not, and some of the kernel's checks use a task's own group and not its ancestors.
func identify(settings []model.Setting, n *model.Node, p *model.Policy, e *entry) []model.Setting {
	if p.Weight.Batch != model.BatchByIdentity || n.Tree.NoIdentity != "" {
		return settings
	}
	s := model.Setting{Value: model.Number(identityOnline), Reason: model.Reason{Code: model.GroupIdentity}}
	group, exists := n.Tree.Pods[e.pod.UID]
	switch {
	case !exists:
		return settings
	case e.comesLast():
		s.Value = model.Number(identityBatch)
	case !e.pod.Class.Online():
		return settings
	}
	s.File = model.File{Dir: group.Dir, Knob: model.Identity}
	settings = append(settings, s)
	for j := range group.Containers {
		s.Dir = group.Path(j)
		settings = append(settings, s)
	}
	return settings
}
