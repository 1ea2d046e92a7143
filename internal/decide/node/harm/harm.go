// Package harm decides whether online pods lack CPU because of others: it compares how long each waits for a CPU with
// what it waits while batch is quiet. A service may have a figure of its own, which also shows what waiting does not.
//
// Wait is counted for each time of running, so that it means the same for a pod that uses little and one that uses
// much: of a request that needs 10 ms of CPU, a wait of 50 thousandths takes 0.5 ms. The mean number of tasks that wait
// is the CPU that the pod lacks, which says how much less batch must use.
package harm

import (
	"slices"
	"strings"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

const (
	tolerated = 100                    // wait beyond the baseline that is no harm, in thousandths of running
	noise     = 5                      // milli-cores that are noise
	debt      = 25 * time.Millisecond  // wait beyond what is allowed, added up, from which a pod is harmed
	mostDebts = 2                      // debts at most, so that it is forgotten soon
	fresh     = 3 * time.Second        // older samples say nothing; a new pod is sampled within this time
	moment    = 300 * time.Millisecond // for which harm lasts without a further sample
	shortest  = 80 * time.Millisecond  // between two samples that are compared
	longest   = 15 * time.Second       // between two samples that are compared
	whole     = longest * model.MaxCPUs
	uses      = 20        // milli-cores: an online pod that uses less needs no signal
	slight    = 100       // wait of such a pod that is no harm, in thousandths of the time that passes
	patient   = 4         // debts from which such a pod is harmed
	most      = 1<<16 - 1 // wait for each time of running, in thousandths

	often  = 100 * time.Millisecond // between two samples while batch runs
	seldom = 10 * time.Second       // while it does not, for the baselines
)

// State is the state between rounds. Times are on the clock of [model.Load].
type State struct {
	Pods      []Pod      `json:",omitempty"` // that are sampled, ordered by UID
	Services  []Service  `json:",omitempty"` // that have a figure, ordered by UID
	Baselines []Baseline `json:",omitempty"` // ordered by key

	Counted        []Counted  `json:",omitempty"` // pods whose cycles are counted, ordered by UID
	CycleBaselines []Baseline `json:",omitempty"` // of cycles, ordered by key
}

// Pod is what is known of one online pod.
type Pod struct {
	UID    string
	Seen   time.Duration // when it was sampled for the last time, or wanted for the first time
	At     time.Duration // of the sample up to which its waiting was judged; 0: none
	Ran    time.Duration // sums of that sample
	Waited time.Duration
	Times  int64
	Debt   time.Duration `json:",omitempty"` // wait beyond what was allowed, less what it waited less, added up
	Harm   model.PodHarm `json:",omitzero"`  // when it was judged last
	Fault
}

// Fault is what proved to be no fault of batch: it stayed although batch was pushed back as far as possible.
type Fault struct {
	Own   int64         `json:",omitempty"` // in the unit in which the pod is judged
	OwnAt time.Duration `json:",omitempty"` // when Own was found, or fell last
}

// Decide judges the waiting of online pods since the previous round.
//
// Quiet means that batch uses so little that online pods wait for themselves: that is what baselines are learned from.
// Useless means that batch was pushed back as far as harm may push it, and that some pods wait all the same.
func Decide(n *model.Node, p *model.Policy, quiet, useless bool, s State) (*model.Harm, State) {
	if p.Suppress.By != model.SuppressOnHarm || p.Mode == model.ModeDisabled || n.Load == nil {
		return nil, State{Baselines: s.Baselines, CycleBaselines: s.CycleBaselines}
	}
	j := judge{n: n, quiet: quiet, useless: useless, state: State{
		Baselines: s.Baselines, CycleBaselines: s.CycleBaselines,
	}}
	if now := n.Load.Clock; slices.ContainsFunc(s.Pods, func(p Pod) bool { return p.Seen > now || p.At > now }) {
		s.Pods = nil // from another boot
	}
	j.result.Known = true
	j.services(p, s.Services)
	next := 0
	for _, pod := range n.Pods {
		if !watched(n, pod) {
			continue
		}
		for next < len(s.Pods) && s.Pods[next].UID < pod.UID {
			next++
		}
		last := Pod{UID: pod.UID, Seen: n.Load.Clock}
		if next < len(s.Pods) && s.Pods[next].UID == pod.UID {
			last = s.Pods[next]
		}
		j.state.Pods = append(j.state.Pods, j.pod(pod, last))
	}
	j.addServices()
	switch {
	case j.result.Signal != "" || j.result.Blind != "":
	case j.new != "":
		j.blind(j.new) // nothing is sampled yet
	default:
		j.result.Signal = model.HarmByDelay // no online pod uses CPU, so that none can be harmed
	}
	if p.Protect.Cycles {
		j.cycles(s.Counted)
	}
	j.state.Baselines = forget(j.state.Baselines, n.Load.Clock)
	j.state.CycleBaselines = forget(j.state.CycleBaselines, n.Load.Clock)
	return &j.result, j.state
}

// watched reports whether a pod can be harmed.
func watched(n *model.Node, pod *model.Pod) bool {
	if !pod.Class.Online() || pod.Ended || pod.Self {
		return false
	}
	_, exists := n.Tree.Pods[pod.UID]
	return exists
}

// Marks returns which pods must be sampled until the next round, how often, and how long each may wait: as long as
// allowed, and a little more. Without act no wait requires a round. Where the state has no pods because nothing is
// judged, it marks the pods that would be judged, and no wait requires a round.
func Marks(n *model.Node, s *State, quiet, act bool) (marks []model.WaitMark, every time.Duration) {
	pods := s.Pods
	if len(pods) == 0 {
		for _, pod := range n.Pods {
			if watched(n, pod) {
				pods = append(pods, Pod{UID: pod.UID})
			}
		}
	}
	if len(pods) == 0 {
		return nil, 0
	}
	every = often
	if quiet {
		every = seldom
	}
	marks = make([]model.WaitMark, len(pods))
	for i := range pods {
		p := &pods[i]
		marks[i] = model.WaitMark{
			UID: p.UID, Ran: p.Ran, Waited: p.Waited, Times: p.Times, Allowed: tolerated + p.Own,
		}
		pod := model.FindPod(n.Pods, p.UID)
		u := n.Load.Pod(p.UID)
		if pod == nil || u == nil {
			continue
		}
		marks[i].Allowed += s.baseline(keyOf(pod)).at(u.CPU.Milli)
		if act && !quiet && p.At != 0 && u.CPU.Throttled == 0 {
			spare, most := bears(u, often)
			marks[i].Most = max(most-p.Debt, most/5) + spare
		}
	}
	return marks, every
}

// judge is the working data of one round.
type judge struct {
	n       *model.Node
	quiet   bool
	useless bool
	result  model.Harm
	state   State
	harms   []serviceHarm // by figures, ordered by UID
	figured []string      // UIDs of pods whose figure is known
	learned bool          // the baselines are a copy of this round
	new     string        // UID of a pod that uses CPU, and will be sampled in a moment
}

// pod judges one pod, given what was known of it.
func (j *judge) pod(pod *model.Pod, p Pod) Pod {
	now := j.n.Load.Clock
	u := j.n.Load.Pod(pod.UID)
	if u == nil {
		return p
	}
	sum, signal := j.sum(u, &p)
	if sum.At == 0 || now-sum.At > j.fresh() {
		switch {
		case u.CPU.Milli < uses:
		case slices.Contains(j.figured, pod.UID):
			j.see(model.HarmByService)
		case now-p.Seen > fresh:
			j.blind(pod.UID)
		case j.new == "":
			j.new = pod.UID
		}
		return Pod{UID: p.UID, Seen: p.Seen, Fault: p.Fault}
	}
	p.Seen = sum.At
	j.see(signal)
	since := sum.At - p.At
	ran, times := sum.Ran-p.Ran, max(sum.Times-p.Times, 0)
	waited := sum.Waited - p.Waited
	if p.At == 0 || since > longest || ran < 0 || waited < 0 || ran > whole ||
		waited > whole {
		// There is nothing to compare with.
		p.take(&sum)
		p.Debt = 0
		return p
	}
	if since < shortest {
		if now-p.At > moment {
			p.Harm = model.PodHarm{}
		}
		j.add(&p.Harm)
		return p
	}
	p.take(&sum)
	p.fade(now)
	if u.CPU.Throttled > 0 {
		return p // its own quota makes it wait
	}
	waited = max(waited-time.Duration(min(times, int64(whole/model.FreeWait)))*model.FreeWait, 0)
	milli := int64(ran * 1000 / since)
	ratio := min(int64(waited*1000/max(ran, time.Microsecond)), most)
	key := keyOf(pod)
	if j.quiet {
		if milli > 0 {
			j.learn(key, milli, ratio)
		}
		return p
	}
	own := tolerated + j.state.baseline(key).at(milli)
	if j.useless && ratio > own {
		p.Own, p.OwnAt = max(p.Own, ratio-own), now
	}
	allowed := own + p.Own
	spare, most := bears(u, since)
	excess := waited - ran*time.Duration(allowed)/1000 - spare
	p.Debt = min(max(p.Debt+excess, 0), mostDebts*most)
	if lacks := int64(excess * 1000 / since); lacks > noise && p.Debt > most {
		p.Harm = model.PodHarm{UID: p.UID, Milli: lacks, Waits: ratio, Allowed: allowed}
		j.add(&p.Harm)
	}
	return p
}

// bears returns how long a pod may wait in a span of time whatever it runs, and the debt from which it is harmed. One
// that uses little waits for the busy thread of another online pod on its CPU, with or without batch: beside a server
// of 0.9 CPUs for 10 to 60 ms a second, of which it ran 2 (kernel 6.18). What it lacks when it is starved is far more.
func bears(u *model.PodUsage, span time.Duration) (spare, most time.Duration) {
	if u.CPU.Milli >= uses {
		return 0, debt
	}
	return span * slight / 1000, patient * debt
}

// sum returns the sums of a pod up to now: of its tasks, or else by its pressure.
func (j *judge) sum(u *model.PodUsage, p *Pod) (model.PodWait, model.HarmSignal) {
	if w := model.FindWait(j.n.Waits, u.UID); w != nil && w.At != 0 {
		return *w, model.HarmByDelay
	}
	w := model.PodWait{At: u.Pressure.At, Ran: p.Ran, Waited: p.Waited, Times: p.Times}
	if u.Pressure.At > p.At {
		since := u.Pressure.At - p.At
		w.Ran += since * time.Duration(u.CPU.Milli) / 1000
		w.Waited += since * time.Duration(u.Pressure.CPU.Some) / 1000
	}
	return w, model.HarmByPressure
}

// fresh returns how old a sample may be.
func (j *judge) fresh() time.Duration {
	if j.quiet {
		return 2 * longest // it is sampled seldom
	}
	return fresh
}

// see records by which signal a pod is judged. The slowest of all pods counts.
func (j *judge) see(signal model.HarmSignal) {
	order := []model.HarmSignal{"", model.HarmByDelay, model.HarmByPressure, model.HarmByService}
	if slices.Index(order, signal) > slices.Index(order, j.result.Signal) {
		j.result.Signal = signal
	}
}

// blind records that nothing is known of a pod.
func (j *judge) blind(uid string) {
	j.result.Known = false
	if j.result.Blind == "" {
		j.result.Blind = uid
	}
}

// add records what a pod lacks.
func (j *judge) add(h *model.PodHarm) {
	j.result.Milli += h.Milli
	if h.Milli > j.result.Worst.Milli {
		j.result.Worst = *h
	}
}

// take records the sample up to which the pod is judged.
func (p *Pod) take(sum *model.PodWait) {
	p.At, p.Ran, p.Waited, p.Times, p.Harm = sum.At, sum.Ran, sum.Waited, sum.Times, model.PodHarm{}
}

// fade forgets slowly: by a sixteenth a minute.
func (f *Fault) fade(now time.Duration) {
	if f.Own > 0 && now-f.OwnAt >= time.Minute {
		f.Own, f.OwnAt = f.Own*15/16, now
	}
}

// keyOf returns the key of the baseline of a pod: pods of one template wait alike.
func keyOf(pod *model.Pod) string {
	for _, label := range []string{"pod-template-hash", "controller-revision-hash"} {
		if hash := pod.Labels[label]; hash != "" && pod.Owner != "" {
			return pod.Owner + "/" + hash
		}
	}
	return pod.UID
}

func compareKey(b Baseline, key string) int { return strings.Compare(b.Key, key) }
