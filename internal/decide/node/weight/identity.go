package weight

import "github.com/waterline-io/waterline/internal/model"

// Identities, as the kernels that have them count: what is online goes before what is normal, on its CPU, and takes the CPU's
// sibling from what is batch. Normal are those that are neither, the classes among them: 0.
const (
	identityBatch  = -1
	identityOnline = 2
)

// identify appends the identity of a pod and of its containers. A new container has its pod's, but one that was there
// before has none, and some of what the kernel does goes by the group that a task is in and not by those above.
func identify(settings []model.Setting, n *model.Node, p *model.Policy, e *entry) []model.Setting {
	if !p.Weight.Identity || n.Tree.NoIdentity != "" {
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
	for _, name := range group.Containers {
		s.Dir = group.Dir + "/" + name
		settings = append(settings, s)
	}
	return settings
}
