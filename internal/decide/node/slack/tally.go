package slack

import (
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// startupTime is the age up to which a pod counts with at least its request, because it has hardly started. A creation
// time further in the future means that the clock was set back, and the pod is not new.
const startupTime = time.Minute

// tally sums up one resource.
type tally struct {
	n      *model.Node
	read   func(*model.Usage) (v int64, at time.Duration)
	stolen int64 // of the machine
	kept   bool  // what a batch pod uses cannot be taken back for another one
	use    model.Use
}

// Tally returns the current usage of a node by consumer. own lists the CPUs of containers with their own sets,
// ordered by pod.
//
// Online usage is the usage of all pods minus the usage of pods that are known to be batch or SYSTEM. So unknown
// usage counts as online. The age includes each subtracted measurement: an old measurement of a batch pod that was
// busy then would hide current online usage.
//
// Memory is the working set everywhere. Anonymous memory and active page cache alone would leave out tmpfs and kernel
// memory of a pod, which cannot be reclaimed either. Of a pod whose requested memory is protected from reclaim, as
// protects says (nil: of none), inactive page cache counts too, up to the request: batch cannot have it.
func Tally(n *model.Node, own []model.OwnCPUs, protects func(*model.Pod) bool) (cpu, memory model.Use) {
	if n.Load == nil {
		return cpu, memory
	}
	milli := func(u *model.Usage) (int64, time.Duration) { return u.CPU.Milli, u.CPU.At }
	t := tally{n: n, read: milli, stolen: amount(n.Load.Stolen)}
	if t.sum(func(p *model.Pod) (int64, int64) { return p.RequestMilli, plus(p.Mid.CPU, p.Batch.CPU) }) {
		t.idleExclusive(own)
	}
	m := tally{
		n: n, read: func(u *model.Usage) (int64, time.Duration) { return u.Memory.WorkingSet, u.Memory.At }, kept: true,
	}
	measured := m.sum(func(p *model.Pod) (int64, int64) { return p.MemoryRequest, plus(p.Mid.Memory, p.Batch.Memory) })
	if measured && protects != nil {
		m.protected(protects)
	}
	return t.use, m.use
}

// protected adds the page cache that protection keeps.
func (t *tally) protected(protects func(*model.Pod) bool) {
	for _, pod := range t.n.Pods {
		if !protects(pod) {
			continue
		}
		if used := t.n.Load.Pod(pod.UID); used != nil && used.Memory.At != 0 {
			m := &used.Memory
			kept := min(amount(pod.MemoryRequest), plus(m.WorkingSet, m.InactiveFile))
			t.use.Protected = plus(t.use.Protected, less(kept, m.WorkingSet))
		}
	}
}

// sum computes everything except the idle part of exclusive CPUs and protected memory. It reports whether the node was
// measured. requests returns how much of the resource a pod requests, and how much of its tiers.
func (t *tally) sum(requests func(*model.Pod) (native, sold int64)) bool {
	l, u := t.n.Load, &t.use
	_, node := t.read(&l.Node)
	_, all := t.read(&l.Classes[model.Guaranteed])
	if node == 0 || all == 0 || len(t.n.Tree.Outside) > 0 {
		return false // not measured, or pods use what their cgroups do not show
	}
	u.Measured = true
	pods := t.count(&l.Classes[model.Guaranteed])
	for _, pod := range t.n.Pods {
		native, sold := requests(pod)
		switch pod.Class {
		case model.ClassBE:
			used := t.of(pod.UID)
			u.Batch = plus(u.Batch, used)
			if sold > 0 || !t.kept {
				used = 0
			}
			if !pod.Ended {
				u.Unsold = plus(u.Unsold, max(amount(native), used))
			}
			continue
		case model.ClassSystem:
			u.Daemons = plus(u.Daemons, t.of(pod.UID))
		}
		if !pod.Ended && t.unmeasured(pod) {
			u.Unmeasured = plus(u.Unmeasured, less(native, t.of(pod.UID)))
		}
	}
	// Some kernels count stolen time as usage of the group that ran at that moment, others do not. In both cases this
	// counts it once.
	u.Stolen = t.stolen
	u.System = less(plus(t.count(&l.Node), u.Stolen), pods)
	u.Online = less(pods, u.Batch, u.Daemons)
	return true
}

// unmeasured reports whether the measured usage of a pod does not represent it yet.
func (t *tally) unmeasured(pod *model.Pod) bool {
	used := t.n.Load.Pod(pod.UID)
	if used == nil {
		return true
	}
	_, at := t.read(&used.Usage)
	return at == 0 || !pod.Created.IsZero() && t.n.Now.Sub(pod.Created).Abs() < startupTime
}

// of returns the measured usage of a pod; 0 if it was not measured.
func (t *tally) of(uid string) int64 {
	if used := t.n.Load.Pod(uid); used != nil {
		return t.count(&used.Usage)
	}
	return 0
}

// count returns a measured amount and includes its age in the result.
func (t *tally) count(u *model.Usage) int64 {
	v, at := t.read(u)
	if at == 0 {
		return 0
	}
	t.use.Age = max(t.use.Age, t.n.Load.Age(at))
	return amount(v)
}

// idleExclusive adds the idle part of CPUs that no other pod may use. The CPUs are known per container, but the usage
// only per pod. So the usage on these CPUs is the usage of the pod minus what its other containers can use elsewhere,
// by their limits.
func (t *tally) idleExclusive(own []model.OwnCPUs) {
	var all model.CPUSet
	have := map[string]bool{}
	for len(own) > 0 {
		n := 1
		for n < len(own) && own[n].UID == own[0].UID {
			n++
		}
		if alone, elsewhere := exclusive(own[:n], t.pod(own[0].UID)); !alone.Empty() {
			all, have[own[0].UID] = all.Or(alone), true
			t.use.IdleExclusive = plus(t.use.IdleExclusive, less(milli(alone), less(t.of(own[0].UID), elsewhere)))
		}
		own = own[n:]
	}
	k := &t.n.Kubelet
	// Batch never runs on isolated CPUs, and which of them are in use is not known.
	t.use.IdleExclusive = plus(t.use.IdleExclusive,
		milli(t.n.Isolated.Minus(all).Minus(k.TakenCPUs).Minus(k.ReservedCPUs)))
	taken := k.TakenCPUs.Minus(all)
	if taken.Empty() {
		return
	}
	var used int64
	for _, pod := range t.n.Pods {
		if pod.QoS == model.Guaranteed && !pod.Ended && !have[pod.UID] {
			whole, elsewhere := static(pod)
			used = plus(used, min(whole, less(t.of(pod.UID), elsewhere)))
		}
	}
	t.use.IdleExclusive = plus(t.use.IdleExclusive, less(milli(taken), used))
}

// exclusive returns the exclusive CPUs of a pod, and the most that its other containers can use, in milli-cores. pod
// is nil if it is not known.
func exclusive(own []model.OwnCPUs, pod *model.Pod) (alone model.CPUSet, elsewhere int64) {
	names := map[string]bool{}
	for _, o := range own {
		if o.Mode == model.CPUExclusive {
			alone, names[o.Container] = alone.Or(o.CPUs), true
		}
	}
	if names[""] || pod == nil {
		return alone, 0
	}
	for _, c := range pod.Containers {
		if !names[c.Name] {
			elsewhere = plus(elsewhere, limit(c))
		}
	}
	return alone, elsewhere
}

// static returns the CPU that the kubelet's static policy assigns exclusively to containers of a Guaranteed pod,
// those with whole CPU requests, and the most that the other containers can use, in milli-cores.
func static(pod *model.Pod) (whole, elsewhere int64) {
	for _, c := range pod.Containers {
		if c.RequestMilli > 0 && c.RequestMilli%1000 == 0 {
			whole = plus(whole, c.RequestMilli)
		} else {
			elsewhere = plus(elsewhere, limit(c))
		}
	}
	return whole, elsewhere
}

// limit returns the most that a container can use while the pod runs, in milli-cores.
func limit(c model.Container) int64 {
	switch {
	case c.Init:
		return 0
	case c.LimitMilli <= 0:
		return maxAmount
	}
	return amount(c.LimitMilli)
}

func milli(s model.CPUSet) int64 { return int64(s.Len()) * 1000 }

// pod returns the pod with a UID; nil if it is not known.
func (t *tally) pod(uid string) *model.Pod {
	return model.FindPod(t.n.Pods, uid)
}
