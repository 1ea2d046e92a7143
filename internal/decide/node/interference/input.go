package interference

import (
	"sort"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// What pods lack is compared over times in between. A shorter time would count for as much as a whole second: a round
// may run early. A longer one is a gap.
const (
	leastBetween = 500 * time.Millisecond
	mostBetween  = 10 * time.Second
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
	Shares int64  // its CPU weight

	UsedAt time.Duration // of the measurement of Used; 0: never
	Used   int64         // CPU use in milli-cores
	WaitAt time.Duration // of the measurement of Wait; 0: never
	Wait   int64         // CPU that it lacks, in milli-cores: how long it waits for one, in thousandths of the time
	Lacked model.Lacked  // the sum that Wait ends with
}

// Node is [Decide] for what a node measured. It is for nodes on which batch runs. What online pods lack comes from the
// rule contention, ordered by UID.
//
// A pod that the API does not know is a possible suspect, but never a victim, and it is never throttled.
func Node(n *model.Node, p *model.Policy, lacked []model.Lacked, s State) (model.Interference, State) {
	return Decide(newInput(n, p, lacked, &s), s)
}

// newInput returns the input of a second, given the state of the last one.
func newInput(n *model.Node, p *model.Policy, lacked []model.Lacked, s *State) Input {
	in := Input{
		Clock: n.Load.Clock, Acts: p.Mode == model.ModeEnforce && !n.Tree.ReadOnly, Pods: make([]Pod, len(n.Load.Pods)),
	}
	next := 0
	for i := range n.Load.Pods {
		u, p := &n.Load.Pods[i], &in.Pods[i]
		for next < len(n.Pods) && n.Pods[next].UID < u.UID {
			next++
		}
		*p = Pod{UID: u.UID, New: u.New, UsedAt: u.CPU.At, Used: u.CPU.Milli}
		if next == len(n.Pods) || n.Pods[next].UID != u.UID || n.Pods[next].Ended {
			continue
		}
		pod := n.Pods[next]
		p.Online, p.Batch, p.Shares = pod.Class.Online(), pod.Class == model.ClassBE, shares(pod)
		var last model.Lacked
		if j, found := s.index(u.UID); found {
			last = s.Tracks[j].Lacked
		}
		p.Lacked = last
		k := sort.Search(len(lacked), func(i int) bool { return lacked[i].UID >= u.UID })
		if p.Online && k < len(lacked) && lacked[k].UID == u.UID {
			p.follow(&last, &lacked[k])
		}
	}
	return in
}

// follow sets what a pod lacks since the last sum.
func (p *Pod) follow(last, now *model.Lacked) {
	since, wait := now.At-last.At, now.Wait-last.Wait
	switch {
	case last.At == 0 || since < 0 || since > mostBetween || wait < 0:
	case since < leastBetween:
		return
	default:
		p.Wait, p.WaitAt = int64(wait/(since/1000)), now.At
	}
	p.Lacked = model.Lacked{At: now.At, Wait: now.Wait}
}

// shares returns the weight that a pod was created with. It is compared among batch pods, which are in one QoS class.
func shares(pod *model.Pod) int64 {
	if pod.Annotations.Shares != 0 {
		return pod.Annotations.Shares
	}
	return model.MilliCPUToShares(max(pod.Grant.RequestMilli, pod.RequestMilli))
}
