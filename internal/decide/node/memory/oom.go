package memory

import "github.com/waterline-io/waterline/internal/model"

// oomOfBatch is the kernel's highest oom_score_adj. For the choice of the process to kill, the kernel adds that many
// thousandths of the node's memory to the process's usage.
const oomOfBatch = 1000

// oomOfDaemons is the lowest value that an online pod can get here.
const oomOfDaemons = 1

// OOMScore returns the oom_score_adj with which a container of the pod should start, if it differs from the kubelet's
// value; 0: the kubelet's value stays. Batch is killed first, whatever the kubelet computed for it.
//
// The kubelet also gives the highest score to online pods without a memory request, and nearly the highest to online
// pods with small requests. Half of the kubelet's value keeps their order, and puts them behind batch by half of the
// node's memory. Daemons of the node (class SYSTEM) come last of all pods with positive values.
//
// Containers of Guaranteed and node-critical pods have negative values, which stay.
func OOMScore(pod *model.Pod, p *model.Policy, kubelets int) int {
	switch {
	case !p.Protect.Memory || p.Mode != model.ModeEnforce || kubelets <= 0:
		return 0
	case pod.Class == model.ClassBE && kubelets != oomOfBatch:
		return oomOfBatch
	case pod.Class.Online():
		return kubelets / 2
	case pod.Class == model.ClassSystem && kubelets > oomOfDaemons:
		return oomOfDaemons
	}
	return 0
}
