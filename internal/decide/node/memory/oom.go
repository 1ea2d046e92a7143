package memory

import "github.com/waterline-io/waterline/internal/model"

// oomOfBatch is the kernel's highest oom_score_adj: as many thousandths of the node's memory count to a process besides what it
// has, when the kernel chooses whom to kill for want of memory.
const oomOfBatch = 1000

// OOMScore returns the oom_score_adj that a container of a pod should start with, where the kubelet wants another; 0: the kubelet's is
// right. Batch goes first, whatever else a batch pod was given. Of online pods the kubelet would have those go as soon that
// request no memory, and nearly as soon those that request little. Half of what it wants keeps their order, and that behind the
// node's daemons, and puts them behind batch by half of the node's memory.
//
// What the kubelet spares it goes on sparing: containers of Guaranteed and of node-critical pods, which have less than 0.
func OOMScore(pod *model.Pod, p *model.Policy, kubelets int) int {
	switch {
	case !p.Protect.Memory || p.Mode != model.ModeEnforce || kubelets <= 0:
		return 0
	case pod.Class == model.ClassBE && kubelets != oomOfBatch:
		return oomOfBatch
	case pod.Class.Online():
		return kubelets / 2
	}
	return 0
}
