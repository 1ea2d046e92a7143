package contention

import (
	"slices"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// LeastUse is the CPU use, in milli-cores, below which an online pod needs no signal.
const LeastUse = 20

const (
	toleratedPart = 100 // wait that is no harm beyond the baseline, in thousandths of running

	busyInterval      = 100 * time.Millisecond // between two samples of waits while batch runs
	quietInterval     = 10 * time.Second       // while it does not, for the baselines
	neighbourInterval = time.Second            // at most, where the neighbour is searched for which a pod waits
	pressureInterval  = 5 * time.Second        // between two measurements of pressure, if each second was not asked for
	sampleGrace       = 3 * time.Second        // by which a sample may be late
	minSpan           = 80 * time.Millisecond  // between two samples that are compared
	maxSpan           = 15 * time.Second       // between two samples that are compared
	systemInterval    = time.Second            // between two samples of the node's services, at least
	harmHold          = 300 * time.Millisecond // for which harm lasts without a further sample that is due

	ownTTL = 10 * time.Minute // for which something counts as a pod's own fault, before it is tried again
	helped = -1               // see [Pod.Trial]
)

// Pod is what is known of one online pod: the sample up to which its waits were judged, and what followed.
type Pod struct {
	model.PodWait
	model.Tolerated               // at its present use
	Due             time.Duration // when a newer sample must be there, or its waits are not known
	Tasks           bool          `json:",omitempty"` // its tasks are seen; if not, its pressure counts
	Stopped         bool          `json:",omitempty"` // its own quota throttled it
	Debt            time.Duration `json:",omitempty"` // see [model.WaitSpan.Owe]
	Lacked          time.Duration `json:",omitempty"` // sum of the waits beyond the baseline
	// When it was judged last. It has no UID: the journal writes all pods anew when more than numbers differ.
	Harm model.PodHarm `json:",omitzero"`
	// What it lacks although batch was pushed back, in milli-cores. It counts when the bin is full, so that it takes many
	// samples, only of times in which the pod itself was harmed.
	Own     Bin           `json:",omitzero"`
	OwnAt   time.Duration `json:",omitempty"` // of the last sample of Own
	Starved Starved       `json:",omitzero"`  // of the node's services
	// The most that it lacked lately: it falls by a third in a second.
	Lacks int64 `json:",omitempty"`
	// What that was when a trial began; helped: the trial ended it.
	Trial int64 `json:",omitempty"`
}

// knownPod returns what is known of a pod.
func knownPod(pods []Pod, uid string) Pod {
	if pod := model.FindByUID(pods, uid, func(p *Pod) string { return p.UID }); pod != nil {
		return *pod
	}
	return Pod{PodWait: model.PodWait{UID: uid}}
}

// signal judges what online pods lack.
func (r *round) signal() {
	s := &r.state
	r.Harm = &model.Harm{Known: true}
	switch use := &r.cpu.Use; {
	case !r.Batch.Quiet, use.Online+use.Daemons+use.System+use.IdleExclusive >= r.cpu.Capacity*nearlyFull/1000:
		s.Quiet = 0
	case s.Quiet == 0:
		s.Quiet = r.now
	}
	last := s.Services
	r.last, s.Pods, s.Services = s.Pods, nil, nil
	if r.onHarm {
		r.services(last)
		r.system()
	}
	for _, pod := range r.n.Pods {
		if r.watched(pod) {
			r.keep(r.pod(pod, knownPod(r.last, pod.UID)))
		}
	}
	r.addUp()
	switch h := r.Harm; {
	case h.Signal != "" || h.Blind != "":
	case r.unsampled != "":
		r.blind(r.unsampled) // nothing is sampled yet
	default:
		h.Signal = model.HarmByDelay // no online pod uses CPU, so that none can be harmed
	}
	s.Baselines = forget(s.Baselines, r.now)
}

// keep adds a pod to the state. As long as nothing differs, it shares the pods of the last state: while batch is quiet,
// most rounds have no new sample.
func (r *round) keep(p Pod) {
	p.Lacks = max(p.Harm.Milli, p.Lacks-(p.Lacks*int64(r.since/time.Millisecond)+2999)/3000)
	s, n := &r.state, len(r.state.Pods)
	if !r.podsCopied && n < len(r.last) && r.last[n] == p {
		s.Pods = r.last[:n+1]
		return
	}
	if !r.podsCopied {
		s.Pods, r.podsCopied = append(make([]Pod, 0, max(len(r.last), n+1)), s.Pods...), true
	}
	s.Pods = append(s.Pods, p)
}

// online reports whether a pod is a running online pod of others than Waterline.
func (r *round) online(pod *model.Pod) bool { return pod.Class.Online() && !pod.Self && r.n.Runs(pod) }

// watched reports whether a pod can lack CPU because of batch. A pod whose containers all have exclusive CPUs, from
// Waterline or from the kubelet, waits for itself: batch never runs there.
func (r *round) watched(pod *model.Pod) bool {
	if !r.online(pod) {
		return false
	}
	static := r.n.Kubelet.StaticCPUs && pod.QoS == model.Guaranteed
	alone := r.cpus.Alone(pod.UID, "")
	for i := range pod.Containers {
		c := &pod.Containers[i]
		if c.Init {
			continue
		}
		whole := static && c.RequestMilli > 0 && c.RequestMilli%1000 == 0
		if !whole && !r.cpus.Alone(pod.UID, c.Name) {
			return true
		}
		alone = true
	}
	return !alone
}

// pod judges one pod by its newest sample, given what was known of it.
func (r *round) pod(pod *model.Pod, p Pod) Pod {
	u, system := r.n.Load.Pod(pod.UID), model.IsSystem(pod.UID)
	switch {
	case system:
		u = &model.PodUsage{UID: pod.UID} // what its tasks use is known, but not what others of it do
	case u == nil:
		p.Harm = model.PodHarm{}
		return p
	}
	if fresh := r.state.Every + sampleGrace; r.away && r.before-p.At <= fresh {
		p.Due = r.now + fresh
	}
	sum, every, signal := r.sum(u, &p)
	// A sample may be as old as was asked for. If they are wanted more often now, the next one is awaited for as long.
	due := r.now + every + sampleGrace
	if p.At != 0 {
		p.Due = max(p.Due, p.At+every+sampleGrace)
	}
	if p.Due == 0 || p.Due > due {
		p.Due = due
	}
	switch isNew := sum.At > p.At; {
	case !isNew && r.now > p.Due:
		if u.CPU.Milli >= LeastUse {
			r.lost(pod.UID)
		}
		p.Tolerated, p.Stopped, p.Debt, p.Harm = model.Tolerated{}, false, 0, model.PodHarm{}
		return p
	case !isNew && p.At == 0:
		if r.unsampled == "" && u.CPU.Milli >= LeastUse {
			r.unsampled = pod.UID
		}
		return p
	}
	r.see(signal)
	switch span, comparable := sum.Since(&p.PodWait); {
	case p.At == 0 || span.Length > maxSpan || !comparable && sum.At > p.At:
		p.take(&sum, every) // there is nothing to compare with
		p.Debt = 0
	case span.Length >= minSpan:
		before := p.At
		p.take(&sum, every)
		stopped := r.n.Load.Throttled(u, pressureInterval+sampleGrace)
		span.Waited -= span.Waited * time.Duration(stopped) / 1000 // its own quota made it wait
		if p.Stopped = stopped > 0; stopped < 1000 {
			r.judge(pod, &p, span, before)
		}
	case system && r.now-p.At <= systemInterval+harmHold:
		r.Harm.Held += r.counts(&p) // batch was pushed back for this sample
	case r.now-p.At > harmHold:
		p.Harm = model.PodHarm{}
	}
	return p
}

// judge makes of what a pod did, from a time on, what it lacks.
func (r *round) judge(pod *model.Pod, p *Pod, span model.WaitSpan, from time.Duration) {
	milli := int64(span.Ran * 1000 / span.Length)
	if !p.Tasks { // pressure is a part of the time, however many tasks run and wait
		span.Ran = min(span.Ran, span.Length)
	}
	key := keyOf(pod)
	p.Permille = toleratedPart + r.state.baseline(key).at(milli)
	if model.IsSystem(p.UID) {
		p.Turn = systemTurn
		r.starves(p, span)
	}
	beyond := span.Excess(model.Tolerated{Permille: p.Permille, Turn: p.Turn})
	p.Lacked += max(beyond, 0)
	if p.At > 0 && !model.IsSystem(p.UID) {
		if r.Lacked == nil {
			r.Lacked = make([]model.Lacked, 0, len(r.last))
		}
		r.Lacked = append(r.Lacked, model.Lacked{UID: p.UID, Lack: model.Lack{At: p.At, Wait: p.Lacked}})
	}
	ratio := int64(max(span.Waited, 0) * 1000 / max(span.Ran, time.Microsecond))
	if r.Batch.Quiet {
		if p.Debt = 0; milli > 0 && r.state.Quiet != 0 && from >= r.state.Quiet {
			r.learn(key, milli, min(ratio, maxLearned))
		}
		return
	}
	p.Milli = p.own(r.now, span.Length, int64(beyond*1000/span.Length), r.cpu.Capacity)
	lacks := int64(0)
	if p.Debt, lacks = span.Owe(p.Debt, r.mostDebt(p), p.Tolerated); lacks == 0 {
		return
	}
	p.Harm = model.PodHarm{Milli: lacks, Waits: ratio, Allowed: p.Permille + p.Milli*1000/max(milli, 1)}
	if r.Batch.AtFloor && r.now-p.OwnAt >= time.Second {
		p.Own.add(int64(beyond * 1000 / span.Length))
		p.OwnAt = r.now
	}
}

// take records the sample up to which the pod is judged.
func (p *Pod) take(sum *model.PodWait, every time.Duration) {
	p.PodWait, p.Due, p.Harm = *sum, sum.At+every+sampleGrace, model.PodHarm{}
}

// mostDebt returns the debt from which a pod is harmed.
func (r *round) mostDebt(p *Pod) time.Duration { return model.MostDebt(r.n.Load.Uses(p.UID)) }

// own returns what a pod lacks through its own fault, in milli-cores, and forgets it: all of it after some time, and
// quickly while the pod lacks far less.
func (p *Pod) own(now, length time.Duration, lacks, most int64) int64 {
	if p.OwnAt != 0 && now-p.OwnAt >= ownTTL {
		p.Own, p.OwnAt = Bin{}, 0
	}
	if p.Own.Samples < meanSamples {
		return 0
	}
	if lacks < p.Own.Mean/2000 {
		p.Own.Mean -= p.Own.Mean / meanSamples * int64(min(length, time.Second)/time.Millisecond) / 1000
		p.Own.Differs = min(p.Own.Differs, p.Own.Mean)
	}
	return min(p.Own.high(), most)
}

// sum returns the sums of a pod up to now, and the time between two samples that the last plan asked for: of its tasks,
// or else by its pressure.
func (r *round) sum(u *model.PodUsage, p *Pod) (model.PodWait, time.Duration, model.HarmSignal) {
	w := model.FindWait(r.n.Waits, u.UID)
	if p.Tasks && (w == nil || w.At <= 0 || w.At > r.now) {
		w = &p.PodWait // this round has no sample: an agent starts, or a look has ended since the clock was read
	}
	if w != nil && w.At > 0 && w.At <= r.now && (p.Tasks && r.now <= p.Due || r.now-w.At <= r.state.Every+sampleGrace) {
		if !p.Tasks { // its pressure counted until now
			p.Tasks, p.PodWait = true, model.PodWait{UID: p.UID}
		}
		return *w, r.state.Every, model.HarmByDelay
	}
	if p.Tasks && r.now > p.Due {
		p.Tasks, p.PodWait = false, model.PodWait{UID: p.UID} // its tasks are not seen any more
	}
	every := pressureInterval
	if r.state.Seconds {
		every = time.Second
	}
	if !p.Tasks && u.Pressure.At > p.At && u.Pressure.At <= r.now {
		return p.Pressed(u), every, model.HarmByPressure
	}
	return p.PodWait, every, model.HarmByPressure
}

// see records by which signal a pod is judged. The slowest of all pods counts.
func (r *round) see(signal model.HarmSignal) {
	order := []model.HarmSignal{"", model.HarmByDelay, model.HarmByPressure, model.HarmByService}
	if slices.Index(order, signal) > slices.Index(order, r.Harm.Signal) {
		r.Harm.Signal = signal
	}
}

// lost records that a pod which uses CPU has no recent signal: only the figure of its service is left, if it has one.
func (r *round) lost(uid string) {
	if slices.Contains(r.figured, uid) {
		r.see(model.HarmByService)
		return
	}
	r.blind(uid)
}

// blind records that nothing is known of a pod.
func (r *round) blind(uid string) {
	r.Harm.Known = false
	if r.Harm.Blind == "" {
		r.Harm.Blind = uid
	}
}

// addUp adds up what all pods lack. Of what a pod lacks by waiting and by its service's figure, the greater counts.
func (r *round) addUp() {
	add := func(h *model.PodHarm, more int64) {
		r.Harm.Milli += more
		r.harmed = append(r.harmed, h.UID)
		if h.Milli > r.Harm.Worst.Milli {
			r.Harm.Worst = *h
		}
	}
	for i := range r.state.Pods {
		if p := &r.state.Pods[i]; r.counts(p) > 0 {
			h := p.Harm
			h.UID = p.UID
			add(&h, h.Milli)
			r.proven = r.proven || p.Trial == helped
		}
	}
	for i := range r.figures {
		f := &r.figures[i]
		pod := knownPod(r.state.Pods, f.UID)
		more := max(f.Milli-r.counts(&pod), 0)
		if f.shallow && r.below() {
			continue
		}
		add(&f.PodHarm, more)
		r.Harm.Deep = r.Harm.Deep || !f.shallow
		switch keeps := r.Harm.Keeps; {
		case f.held:
			r.Harm.Held += more
		case keeps == 0 || f.keeps < keeps:
			r.Harm.Keeps = f.keeps
		}
	}
}
