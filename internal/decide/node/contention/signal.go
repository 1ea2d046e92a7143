package contention

import (
	"slices"
	"strings"
	"time"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

const (
	tolerated = 100                   // wait that is no harm beyond the baseline, in thousandths of running
	noise     = 5                     // milli-cores that are noise
	debt      = 25 * time.Millisecond // wait beyond what is tolerated, added up, from which a busy pod is harmed
	little    = 100                   // milli-cores: a pod that uses less may owe more, up to four times as much
	mostDebts = 2                     // debts at most, so that harm is forgotten soon
	uses      = 20                    // milli-cores: an online pod that uses less needs no signal

	often      = 100 * time.Millisecond // between two samples of waits while batch runs
	seldom     = 10 * time.Second       // while it does not, for the baselines
	interferes = time.Second            // at most, where the neighbour is searched for which a pod waits
	pressures  = 5 * time.Second        // between two measurements of pressure, if each second was not asked for
	grace      = 3 * time.Second        // by which a sample may be late
	shortest   = 80 * time.Millisecond  // between two samples that are compared
	longest    = 15 * time.Second       // between two samples that are compared
	services   = time.Second            // between two samples of the node's services, at least
	moment     = 300 * time.Millisecond // for which harm lasts without a further sample that is due

	ownFor = 10 * time.Minute // for which something counts as a pod's own fault, before it is tried again
)

// Pod is what is known of one online pod: the sample up to which its waits were judged, and what followed.
type Pod struct {
	model.PodWait
	model.Tolerated               // at its present use
	Due             time.Duration // when a newer sample must be there, or its waits are not known
	Tasks           bool          `json:",omitempty"` // its tasks are seen; if not, its pressure counts
	Stopped         bool          `json:",omitempty"` // its own quota throttled it
	Debt            time.Duration `json:",omitempty"` // wait beyond what is tolerated, less what it waited less, added up
	Lacked          time.Duration `json:",omitempty"` // sum of the waits beyond the baseline
	Harm            model.PodHarm `json:",omitzero"`  // when it was judged last
	// What it lacks although batch was pushed back, in milli-cores. It counts when the bin is full, so that it takes many
	// samples, only of times in which the pod itself was harmed.
	Own     Bin           `json:",omitzero"`
	OwnAt   time.Duration `json:",omitempty"` // of the last sample of Own
	Starved Starved       `json:",omitzero"`  // of the node's services
}

// findPod returns the index of a pod by its UID.
func findPod(pods []Pod, uid string) (int, bool) {
	return slices.BinarySearchFunc(pods, uid, func(p Pod, uid string) int { return strings.Compare(p.UID, uid) })
}

// knownPod returns what is known of a pod.
func knownPod(pods []Pod, uid string) Pod {
	if i, found := findPod(pods, uid); found {
		return pods[i]
	}
	return Pod{PodWait: model.PodWait{UID: uid}}
}

// signal judges what online pods lack.
func (r *round) signal(last State) {
	s := &r.state
	r.harm = &model.Harm{Known: true}
	switch {
	case !r.batch.Quiet:
		s.Quiet = 0
	case s.Quiet == 0:
		s.Quiet = r.now
	}
	s.Pods, s.Services = slices.Grow([]Pod(nil), len(last.Pods)), nil
	r.lacked = slices.Grow(r.lacked, len(last.Pods))
	if r.onHarm {
		r.services(last.Services)
		r.system(last.Pods)
	}
	for _, pod := range r.n.Pods {
		if !r.watched(pod) {
			continue
		}
		s.Pods = append(s.Pods, r.pod(pod, knownPod(last.Pods, pod.UID)))
	}
	if len(s.Pods) == 0 {
		s.Pods = nil
	}
	r.addFigures()
	switch h := r.harm; {
	case h.Signal != "" || h.Blind != "":
	case r.fresh != "":
		r.blind(r.fresh) // nothing is sampled yet
	default:
		h.Signal = model.HarmByDelay // no online pod uses CPU, so that none can be harmed
	}
	s.Baselines = forget(s.Baselines, r.now)
}

// watched reports whether a pod can lack CPU because of batch. A pod on exclusive CPUs waits for itself: batch never
// runs there.
func (r *round) watched(pod *model.Pod) bool { return r.online(pod) && !r.alone(pod) }

// online reports whether a pod is a running online pod of others than Waterline.
func (r *round) online(pod *model.Pod) bool {
	_, exists := r.n.Tree.Pods[pod.UID]
	return exists && pod.Class.Online() && !pod.Ended && !pod.Self
}

// alone reports whether all containers of a pod have exclusive CPUs, from Waterline or from the kubelet.
func (r *round) alone(pod *model.Pod) bool {
	own := func(name string) bool {
		return r.cpus != nil && slices.ContainsFunc(r.cpus.Own, func(o model.OwnCPUs) bool {
			return o.UID == pod.UID && o.Mode == model.CPUExclusive && (o.Container == "" || o.Container == name)
		})
	}
	if own("") {
		return true
	}
	static := r.n.Kubelet.StaticCPUs && pod.QoS == model.Guaranteed
	found := false
	for i := range pod.Containers {
		c := &pod.Containers[i]
		if c.Init {
			continue
		}
		whole := static && c.RequestMilli > 0 && c.RequestMilli%1000 == 0
		if !whole && !own(c.Name) {
			return false
		}
		found = true
	}
	return found
}

// pod judges one pod, given what was known of it.
func (r *round) pod(pod *model.Pod, p Pod) Pod {
	u, system := r.n.Load.Pod(pod.UID), model.IsSystem(pod.UID)
	switch {
	case system:
		u = &model.PodUsage{UID: pod.UID} // what its tasks use is known, but not what others of it do
	case u == nil:
		return p
	}
	sum, every, signal := r.sum(u, &p)
	// A sample may be as old as was asked for. If they are wanted more often now, the next one is awaited for as long.
	due := r.now + every + grace
	if p.At != 0 {
		p.Due = max(p.Due, p.At+every+grace)
	}
	if p.Due == 0 || p.Due > due {
		p.Due = due
	}
	if now := sum.At <= p.At; now && r.now > p.Due {
		switch {
		case u.CPU.Milli < uses:
		case slices.Contains(r.figured, pod.UID):
			r.see(model.HarmByService)
		default:
			r.blind(pod.UID)
		}
		return Pod{
			PodWait: p.PodWait, Due: p.Due, Tasks: p.Tasks, Lacked: p.Lacked, Own: p.Own, OwnAt: p.OwnAt, Starved: p.Starved,
		}
	} else if now && p.At == 0 {
		if r.fresh == "" && u.CPU.Milli >= uses {
			r.fresh = pod.UID
		}
		return p
	}
	r.see(signal)
	span, comparable := sum.Since(&p.PodWait)
	switch {
	case p.At == 0 || span.Length > longest || !comparable && sum.At > p.At:
		p.take(&sum, every) // there is nothing to compare with
		p.Debt = 0
		return p
	case span.Length < shortest:
		switch {
		case system && r.now-p.At <= services+moment:
			r.harm.Held += p.Harm.Milli // batch was pushed back for this sample
		case r.now-p.At > moment:
			p.Harm = model.PodHarm{}
		}
		r.add(&p)
		return p
	}
	before := p.At
	p.take(&sum, every)
	if p.Stopped = r.stopped(u); p.Stopped {
		return p // its own quota makes it wait
	}
	milli := int64(span.Ran * 1000 / span.Length)
	key := keyOf(pod)
	p.Permille = tolerated + r.state.baseline(key).at(milli)
	if system {
		p.Turn = turn
		r.starves(&p, span)
	}
	raw := span.Excess(model.Tolerated{Permille: p.Permille, Turn: p.Turn})
	p.Lacked += max(raw, 0)
	if p.At > 0 && !system {
		r.lacked = append(r.lacked, model.Lacked{UID: p.UID, Lack: model.Lack{At: p.At, Wait: p.Lacked}})
	}
	ratio := int64(max(span.Waited, 0) * 1000 / max(span.Ran, time.Microsecond))
	if r.batch.Quiet {
		if p.Debt = 0; milli > 0 && r.state.Quiet != 0 && before >= r.state.Quiet {
			r.learn(key, milli, min(ratio, 1<<16-1))
		}
		return p
	}
	p.Milli = p.own(r.now, span.Length, int64(raw*1000/span.Length), r.cpu.Capacity)
	if lacks := owe(&p.Debt, span, p.Tolerated, p.most(r.n.Load)); lacks > 0 {
		p.Harm = model.PodHarm{
			UID: p.UID, Milli: lacks, Waits: ratio, Allowed: p.Permille + p.Milli*1000/max(milli, 1),
		}
		r.add(&p)
		if r.batch.AtFloor && r.now-p.OwnAt >= time.Second {
			p.Own.add(int64(raw * 1000 / span.Length))
			p.OwnAt = r.now
		}
	}
	return p
}

// owe adds what a pod waited beyond what is tolerated to its debt. It returns what the pod lacks, in milli-cores; 0: it
// does not owe enough to be harmed, or lacks no more than noise.
func owe(sum *time.Duration, span model.WaitSpan, tolerated model.Tolerated, most time.Duration) int64 {
	excess := span.Excess(tolerated)
	*sum = min(max(*sum+excess, 0), mostDebts*most)
	if lacks := span.Lacks(excess); lacks > noise && *sum > most {
		return lacks
	}
	return 0
}

// take records the sample up to which the pod is judged.
func (p *Pod) take(sum *model.PodWait, every time.Duration) {
	p.PodWait, p.Due, p.Harm = *sum, sum.At+every+grace, model.PodHarm{}
}

// own returns what a pod lacks through its own fault, in milli-cores, and forgets it: all of it after some time, and
// quickly while the pod lacks far less.
func (p *Pod) own(now, length time.Duration, lacks, most int64) int64 {
	if p.OwnAt != 0 && now-p.OwnAt >= ownFor {
		p.Own, p.OwnAt = Bin{}, 0
	}
	if p.Own.Samples < weight {
		return 0
	}
	if lacks < p.Own.Mean/2000 {
		p.Own.Mean -= p.Own.Mean / weight * int64(min(length, time.Second)/time.Millisecond) / 1000
		p.Own.Differs = min(p.Own.Differs, p.Own.Mean)
	}
	return min(p.Own.high(), most)
}

// most returns the debt from which a pod is harmed. One that uses little waits for the busy thread of another online
// pod on its CPU now and then, with or without batch; what it lacks when it is starved is far more.
func (p *Pod) most(l *model.Load) time.Duration {
	milli := int64(0)
	if u := l.Pod(p.UID); u != nil {
		milli = u.CPU.Milli
	}
	return debt + 3*debt*time.Duration(max(little-max(milli, 0), 0))/little
}

// stopped reports whether the pod's own quota throttled it, or a container's: the pod's may be larger, because it is
// the sum of all containers'.
func (r *round) stopped(u *model.PodUsage) bool {
	if u.CPU.Throttled > 0 {
		return true
	}
	inside := r.n.Load.Inside
	i, _ := slices.BinarySearchFunc(inside, u.UID, func(c model.InsideUsage, uid string) int {
		return strings.Compare(c.UID, uid)
	})
	for ; i < len(inside) && inside[i].UID == u.UID; i++ {
		if inside[i].Throttled > 0 && r.n.Load.Age(inside[i].At) <= pressures+grace {
			return true
		}
	}
	return false
}

// sum returns the sums of a pod up to now, and the time between two samples that the last plan asked for: of its tasks,
// or else by its pressure.
func (r *round) sum(u *model.PodUsage, p *Pod) (model.PodWait, time.Duration, model.HarmSignal) {
	w := model.FindWait(r.n.Waits, u.UID)
	if w != nil && w.At > 0 && w.At <= r.now && (p.Tasks && r.now <= p.Due || r.now-w.At <= r.state.Every+grace) {
		if !p.Tasks { // its pressure counted until now
			p.Tasks, p.PodWait = true, model.PodWait{UID: p.UID}
		}
		return *w, r.state.Every, model.HarmByDelay
	}
	if p.Tasks && r.now > p.Due {
		p.Tasks, p.PodWait = false, model.PodWait{UID: p.UID} // its tasks are not seen any more
	}
	every := pressures
	if r.state.Seconds {
		every = time.Second
	}
	sum := p.PodWait
	if !p.Tasks && u.Pressure.At > p.At && u.Pressure.At <= r.now {
		since := u.Pressure.At - p.At
		sum.At = u.Pressure.At
		sum.Ran += since * time.Duration(min(max(u.CPU.Milli, 0), model.MaxCPUs*1000)) / 1000
		sum.Waited += since * time.Duration(min(max(u.Pressure.CPU.Some, 0), 1000)) / 1000
		if p.At == 0 {
			sum.Ran, sum.Waited = 0, 0
		}
	}
	return sum, every, model.HarmByPressure
}

// see records by which signal a pod is judged. The slowest of all pods counts.
func (r *round) see(signal model.HarmSignal) {
	order := []model.HarmSignal{"", model.HarmByDelay, model.HarmByPressure, model.HarmByService}
	if slices.Index(order, signal) > slices.Index(order, r.harm.Signal) {
		r.harm.Signal = signal
	}
}

// blind records that nothing is known of a pod.
func (r *round) blind(uid string) {
	r.harm.Known = false
	if r.harm.Blind == "" {
		r.harm.Blind = uid
	}
}

// add records what a pod lacks.
func (r *round) add(p *Pod) {
	h := &p.Harm
	if h.Milli == 0 {
		return
	}
	r.harmed = append(r.harmed, p.UID)
	r.harm.Milli += h.Milli
	if h.Milli > r.harm.Worst.Milli {
		r.harm.Worst = *h
	}
}

// Inside returns the CPU use of a pod from which on its containers must be measured to see whether its own quota
// throttles it, in milli-cores; 0: never. A container that was throttled within a second used a tenth of its limit.
func Inside(n *model.Node, pod *model.Pod) int64 {
	if !pod.Class.Online() || pod.Ended {
		return 0
	}
	var least int64
	for _, name := range n.Tree.Pods[pod.UID].Containers {
		if c := cgroup.ContainerOf(pod, name); c != nil && c.LimitMilli > 0 && (least == 0 || c.LimitMilli < least) {
			least = c.LimitMilli
		}
	}
	if least == 0 {
		return 0
	}
	return max(least/10, uses)
}
