package slack

import (
	"sort"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// young is how long after its creation a pod counts with its request, if it uses less: it has hardly begun. One that will be
// created later than that from now was created before the clock was set back, and is not new.
const young = time.Minute

// tally counts one resource.
type tally struct {
	n      *model.Node
	read   func(*model.Usage) (v int64, at time.Duration)
	stolen int64 // of the machine
	use    model.Use
}

// Tally says who uses what of a node now. Own are the CPUs that containers have for their own, ordered by pod.
//
// Online is what all pods use less what those use that are known to be something else, so whatever nobody knows is online.
// Each measurement that something is subtracted by counts for the age: a batch pod that was last measured when it was busy
// would hide what online pods use now.
//
// Memory is the working set everywhere. Memory of processes and active page cache alone would leave out what tmpfs and the
// kernel hold for a pod, which cannot be taken back from it either.
func Tally(n *model.Node, own []model.OwnCPUs) (cpu, memory model.Use) {
	if n.Load == nil {
		return cpu, memory
	}
	t := tally{n: n, read: func(u *model.Usage) (int64, time.Duration) { return u.CPU.Milli, u.CPU.At }, stolen: amount(n.Load.Stolen)}
	if t.sum(func(p *model.Pod) int64 { return p.RequestMilli }) {
		t.whole(own)
	}
	m := tally{n: n, read: func(u *model.Usage) (int64, time.Duration) { return u.Memory.WorkingSet, u.Memory.At }}
	m.sum(func(p *model.Pod) int64 { return p.MemoryRequest })
	return t.use, m.use
}

// sum counts all but the CPUs that pods have alone. It reports whether the node was measured.
func (t *tally) sum(request func(*model.Pod) int64) bool {
	l, u := t.n.Load, &t.use
	_, node := t.read(&l.Node)
	_, all := t.read(&l.Classes[model.Guaranteed])
	if node == 0 || all == 0 {
		return false
	}
	u.Measured = true
	pods := t.count(&l.Classes[model.Guaranteed])
	var daemons int64
	for _, pod := range t.n.Pods {
		switch pod.Class {
		case model.ClassBE:
			u.Batch = plus(u.Batch, t.of(pod.UID))
			continue
		case model.ClassSystem:
			daemons = plus(daemons, t.of(pod.UID))
		}
		if !pod.Ended && t.unmeasured(pod) {
			u.Unmeasured = plus(u.Unmeasured, less(request(pod), t.of(pod.UID)))
		}
	}
	// Some kernels count what the hypervisor took as used by the group that ran just then, and some do not. Either way this
	// has it once.
	u.Stolen = t.stolen
	u.System = plus(less(plus(t.count(&l.Node), u.Stolen), pods), daemons)
	u.Online = less(pods, u.Batch, daemons)
	return true
}

// unmeasured reports whether what a pod was measured to use says nothing about it yet.
func (t *tally) unmeasured(pod *model.Pod) bool {
	used := t.n.Load.Pod(pod.UID)
	if used == nil {
		return true
	}
	_, at := t.read(&used.Usage)
	return at == 0 || !pod.Created.IsZero() && t.n.Now.Sub(pod.Created).Abs() < young
}

// of returns what a pod was measured to use; 0 if it was not.
func (t *tally) of(uid string) int64 {
	if used := t.n.Load.Pod(uid); used != nil {
		return t.count(&used.Usage)
	}
	return 0
}

// count returns an amount that counts, if it was measured, and notes its age.
func (t *tally) count(u *model.Usage) int64 {
	v, at := t.read(u)
	if at == 0 {
		return 0
	}
	t.use.Age = max(t.use.Age, t.n.Load.Age(at))
	return amount(v)
}

// whole adds what pods leave unused of CPUs that nobody else may run on. The CPUs of a container are known, but only what
// its pod uses: that much is used on them as the pod's other containers cannot have used elsewhere, by their limits.
func (t *tally) whole(own []model.OwnCPUs) {
	var all model.CPUSet
	have := map[string]bool{}
	for len(own) > 0 {
		n := 1
		for n < len(own) && own[n].UID == own[0].UID {
			n++
		}
		if alone, elsewhere := exclusive(own[:n], t.pod(own[0].UID)); !alone.Empty() {
			all, have[own[0].UID] = all.Or(alone), true
			t.use.Whole = plus(t.use.Whole, less(milli(alone), less(t.of(own[0].UID), elsewhere)))
		}
		own = own[n:]
	}
	taken := t.n.Kubelet.TakenCPUs.Minus(all)
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
	t.use.Whole = plus(t.use.Whole, less(milli(taken), used))
}

// exclusive returns the CPUs that a pod has alone, and what its containers can use of others at most, in milli-cores. The
// pod is nil if it is not known.
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

// static returns how much CPU the kubelet's static policy gives the containers of a Guaranteed pod for themselves, those
// that ask for whole CPUs, and what the others can use at most, in milli-cores.
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

// limit returns what a container can use while the pod runs, in milli-cores.
func limit(c model.Container) int64 {
	switch {
	case c.Init:
		return 0
	case c.LimitMilli <= 0:
		return most
	}
	return amount(c.LimitMilli)
}

func milli(s model.CPUSet) int64 { return int64(s.Len()) * 1000 }

// pod returns a pod by its UID; nil if it is not known.
func (t *tally) pod(uid string) *model.Pod {
	pods := t.n.Pods
	if i := sort.Search(len(pods), func(i int) bool { return pods[i].UID >= uid }); i < len(pods) && pods[i].UID == uid {
		return pods[i]
	}
	return nil
}
