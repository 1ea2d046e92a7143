package interference

import (
	"cmp"
	"math"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// Input is what one second showed of the pods that compete for the CPUs of a node.
type Input struct {
	Clock time.Duration // the time now, on the clock of [model.Load]
	Acts  bool          // batch pods may be throttled; if not, suspects are only reported
	Pods  []Pod         // that have a cgroup, ordered by UID
}

// Pod is one pod that competes for CPUs.
type Pod struct {
	UID    string // as in the pod's cgroup
	Online bool   // it can be a victim
	Batch  bool   // it may be throttled
	New    bool   // its cgroup was made since the last measurement, so that it used nothing until then
	Shares int32  // its CPU weight

	UsedAt time.Duration // of the measurement of Used; 0: never
	Used   int64         // CPU use in milli-cores
	Lacked model.Lack    // CPU that it lacked until now, as the rule contention says
}

// Node is [Decide] for what a node measured. It is for nodes on which batch runs. What online pods lack comes from the
// rule contention, ordered by UID.
//
// A pod that the API does not know is a possible suspect, but never a victim, and it is never throttled.
func Node(n *model.Node, p *model.Policy, lacked []model.Lacked, s State) (model.Interference, State) {
	return Decide(newInput(n, p, lacked), s)
}

func newInput(n *model.Node, p *model.Policy, lacked []model.Lacked) Input {
	in := Input{
		Clock: n.Load.Clock, Acts: p.Mode == model.ModeEnforce && !n.Tree.ReadOnly, Pods: make([]Pod, len(n.Load.Pods)),
	}
	for i := range n.Load.Pods {
		u, p := &n.Load.Pods[i], &in.Pods[i]
		*p = Pod{UID: u.UID, New: u.New, UsedAt: u.CPU.At, Used: u.CPU.Milli}
		pod := model.FindPod(n.Pods, u.UID)
		if pod == nil || pod.Ended {
			continue
		}
		p.Online, p.Batch, p.Shares = pod.Class.Online(), pod.Class == model.ClassBE, shares(pod)
		if l := model.FindByUID(lacked, u.UID, func(l *model.Lacked) string { return l.UID }); p.Online && l != nil {
			p.Lacked = l.Lack
		}
	}
	return in
}

// shares returns the weight that a pod was created with. It is compared among batch pods, which are in one QoS class.
func shares(pod *model.Pod) int32 {
	weight := cmp.Or(pod.Annotations.Shares, model.MilliCPUToShares(max(pod.Grant.RequestMilli, pod.RequestMilli)))
	return int32(min(weight, math.MaxInt32))
}
