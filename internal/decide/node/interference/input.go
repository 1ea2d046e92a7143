package interference

import (
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// WaitsEvery is how often the waiting of tasks must be sampled where the kernel has no pressure.
const WaitsEvery = time.Second

// Samples of waiting are compared over times in between. A shorter time would count for as much as a whole second: a
// round may run early. A longer one is a gap.
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
	WaitAt time.Duration // of the measurement of Wait; 0: never, or this node cannot measure it
	Wait   int64         // part of the time in which it waited for a CPU, in thousandths, as [model.Waited] computes it
	Sum    Sum           // the sample that Wait ends with
}

// Sum is a sample of how long the tasks of a pod waited for a CPU, see [model.PodWait]. The zero value: there is none.
type Sum struct {
	At     time.Duration
	Waited time.Duration
}

// Node is [Decide] for what a node measured. It is for nodes on which batch runs.
//
// A pod that the API does not know is a possible suspect, but never a victim, and it is never throttled.
func Node(n *model.Node, p *model.Policy, s State) (model.Interference, State) {
	return Decide(newInput(n, p, &s), s)
}

// newInput returns the input of a second, given the state of the last one.
func newInput(n *model.Node, p *model.Policy, s *State) Input {
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
		if p.Online {
			var last Track
			if j, found := s.index(u.UID); found {
				last = s.Tracks[j]
			}
			delay, at := int64(0), time.Duration(0)
			if w := model.FindWait(n.Waits, u.UID); w != nil && w.At != 0 {
				delay, at, p.Sum = last.delay(w)
			}
			p.Wait, p.WaitAt = model.Waited(&u.Usage, delay, at, pod.LimitMilli)
		}
	}
	return in
}

// delay returns the run-queue delay of a pod since the last sample, in thousandths of the time, and the sample that the
// next one is compared with. If there is no new value, the time is that of an old one.
func (t *Track) delay(w *model.PodWait) (permille int64, at time.Duration, next Sum) {
	old := max(t.Wait.At, 1) // 0 would mean that delay is not measured
	next = Sum{At: w.At, Waited: w.Waited}
	since, waited := w.At-t.Sum.At, w.Waited-t.Sum.Waited
	switch {
	case t.Sum.At == 0 || since < 0 || since > mostBetween || waited < 0:
		return 0, old, next
	case since < leastBetween:
		return 0, old, t.Sum
	}
	return int64(waited / (since / 1000)), w.At, next
}

// shares returns the weight that a pod was created with. It is compared among batch pods, which are in one QoS class.
func shares(pod *model.Pod) int64 {
	if pod.Annotations.Shares != 0 {
		return pod.Annotations.Shares
	}
	return model.MilliCPUToShares(max(pod.Grant.RequestMilli, pod.RequestMilli))
}
