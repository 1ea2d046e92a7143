package interference

import (
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// Input is what one second showed of who waits for the CPU and who uses it.
type Input struct {
	Clock time.Duration // the time now, on the clock of [model.Load]
	Acts  bool          // batch may be throttled; where not, who is named is named only
	Pods  []Pod         // that have a cgroup, ordered by UID
}

// Pod is one pod of those that compete for the CPU.
type Pod struct {
	UID    string // as in the pod's cgroup
	Online bool   // its waiting counts
	Batch  bool   // it may be throttled
	New    bool   // its cgroup was made since the measurement before, so that it used nothing until then
	Shares int64  // what it weighs

	UsedAt time.Duration // of the measurement; 0: never
	Used   int64         // in milli-cores
	WaitAt time.Duration // of the measurement; 0: never, or this node cannot tell
	Wait   int64         // for how much of the time it waited for a CPU, as [model.Waited] says
}

// Node takes in what a node measured, and says who is to blame there, as [Decide] does. It is for nodes on which batch runs: where
// none does, nobody need look.
//
// Batch is throttled only where what is decided is carried out. What was given to a pod that is none of those that the API knows
// is compared too, but it neither counts as waiting nor is throttled.
func Node(n *model.Node, p *model.Policy, s *State) *model.Interference {
	in := &s.in
	in.Clock, in.Acts = n.Load.Clock, p.Mode == model.ModeEnforce && !n.Tree.ReadOnly
	in.Pods = in.Pods[:0]
	next := 0
	for i := range n.Load.Pods {
		u := &n.Load.Pods[i]
		for next < len(n.Pods) && n.Pods[next].UID < u.UID {
			next++
		}
		c := Pod{UID: u.UID, New: u.New, UsedAt: u.CPU.At, Used: u.CPU.Milli}
		if next < len(n.Pods) && n.Pods[next].UID == u.UID && !n.Pods[next].Ended {
			pod := n.Pods[next]
			c.Online, c.Batch, c.Shares = pod.Class.Online(), pod.Class == model.ClassBE, weighs(pod)
			if c.Online {
				c.Wait, c.WaitAt = model.Waited(&u.Usage, pod.LimitMilli)
			}
		}
		in.Pods = append(in.Pods, c)
	}
	return Decide(in, s)
}

// weighs returns the weight that a pod came with, in shares. It is compared among batch, which has one class.
func weighs(pod *model.Pod) int64 {
	if pod.Annotations.Shares != 0 {
		return pod.Annotations.Shares
	}
	return model.MilliCPUToShares(max(pod.Grant.RequestMilli, pod.RequestMilli))
}
