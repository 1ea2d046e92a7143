// Package contention decides how much CPU batch may use now, and why. The rules cpuset and quota enforce it, on batch
// pods only. One number leads through it: the milli-cores that each pod lacks.
//
//	signal      what each online pod lacks, by its tasks' waits or its pressure
//	service     the same by the figure of its service
//	system      the node's own services, which are judged as pods are, and because of whom they wait
//	baseline    what it waits anyway: while batch is quiet, or although batch was pushed back
//	bearing     the limit: the whole machine while nobody lacks CPU; down in proportion to the lack, up along a cubic
//	arithmetic  what online pods leave under the waterline: the limit where nothing is known, and the least otherwise
//	parts       the limit as CPUs, whole cores and quotas of batch pods
//
// See docs/design/contention.md.
package contention

import (
	"slices"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

const (
	// Batch is quiet while it uses less than both: online pods then wait for themselves.
	quietPart  = 10  // thousandths of the capacity
	quietMilli = 100 // milli-cores

	maxRound  = 2 * time.Second // the longest time between two rounds that counts as time without harm
	maxUseAge = 5 * time.Second // older measurements of the use do not show that batch is quiet
)

// State is the state between rounds. Times are on the clock of [model.Load].
type State struct {
	Clock   time.Duration // of the last round
	Every   time.Duration // between two samples of waits, as the last plan asked; 0: it asked for none
	Seconds bool          // the last plan asked for the pressure of online pods each second
	Quiet   time.Duration // since when batch has been quiet, and the node not full of others; 0: it is not

	Pods      []Pod      `json:",omitempty"` // online pods that can lack CPU, and the node's services, ordered by UID
	Services  []Service  `json:",omitempty"` // that have a figure, ordered by UID
	Gone      []Service  `json:",omitempty"` // of pods that are gone, one for each owner, see [round.leave]
	Baselines []Baseline `json:",omitempty"` // ordered by key

	Arithmetic arithmetic
	Harm       bearing           `json:",omitzero"`
	CPUs       int               // number of CPUs for batch; 0: all
	Parts      []model.BatchPart `json:",omitempty"`
	Reaction   model.Reaction
}

// Result is what a round decided, and what the next one needs observed.
type Result struct {
	Batch  model.Batch
	Harm   *model.Harm        // nil: it is not searched
	Limit  *model.Suppression // nil: batch is not limited
	Lacked []model.Lacked     // of the online pods whose waits are sampled, ordered by UID

	Waits    []model.WaitMark // ordered by UID
	Every    time.Duration
	Services []model.ServiceTarget
	Seconds  bool // pressure of online pods is needed each second
	NoSignal bool // neither the tasks of online pods nor their pressure are seen
}

// Learned returns the part of a state that counts after a reboot, when the clock starts anew.
func (s State) Learned() State {
	all := slices.Clone(s.Baselines)
	for i := range all {
		all[i].Used = 0
	}
	return State{Baselines: all}
}

// round is the working data of one round.
type round struct {
	Result
	n      *model.Node
	p      *model.Policy
	now    time.Duration
	before time.Duration // of the last round
	since  time.Duration // the last round, as far as it counts
	away   bool          // there was no agent for a while
	cpu    *model.Account
	cpus   *model.CPUPlan // nil: no pod has CPUs of its own
	onHarm bool
	state  State
	last   []Pod // of the last round

	figures         []figure // of services, that show harm
	figured         []string // UIDs of pods whose figure is known
	holds           bool     // batch gets no more, because a figure is tested, or is not known any more
	unsampled       string   // UID of a pod that uses CPU, and will be sampled in a moment
	harmed          []string // UIDs of harmed pods
	proven          bool     // less than arithmetic leaves helped one of them
	baselinesCopied bool     // the baselines are a copy of this round
	podsCopied      bool     // and so are the pods

	limit   int64 // of batch
	atFloor bool  // it is as low as harm may push it
	why     model.Reason
}

// Decide decides how much CPU batch may use, from what online pods lack and from what they leave. The limit is nil if
// batch is not limited, or if nothing was measured yet. cpus are the pods' own CPUs, nil if no pod has any.
func Decide(n *model.Node, p *model.Policy, left *model.Slack, cpus *model.CPUPlan, s State) (Result, State) {
	r := round{n: n, p: p, now: n.Load.Clock, cpu: &left.CPU, cpus: cpus, onHarm: p.Suppress.By == model.SuppressOnHarm}
	if s.Clock > r.now { // it is of another boot
		limit := arithmetic{Known: s.Arithmetic.Known, Milli: s.Arithmetic.Milli}
		s = State{Baselines: s.Baselines, Arithmetic: limit, CPUs: s.CPUs, Parts: s.Parts}
	}
	r.before, r.since = s.Clock, min(r.now-s.Clock, maxRound)
	r.state = s
	r.state.Clock = r.now
	if r.away = r.now-s.Clock > sampleGrace; r.away {
		r.state.Harm.Low = 0 // batch pods that began meanwhile had no limit
	}
	r.Batch = r.batchNow()
	judged := r.onHarm || p.Protect.Interference
	if judged {
		r.signal()
	} else {
		r.state.Pods, r.state.Services, r.state.Gone = nil, nil, nil
		r.state.Quiet, r.state.Every, r.state.Seconds = 0, 0, false
	}
	if !r.onHarm {
		r.state.Harm = bearing{}
	}
	r.Limit = r.decide(left.Memory.Allow)
	if judged {
		r.ask()
	}
	if !r.onHarm {
		r.Harm = nil
	}
	return r.Result, r.state
}

// batchNow returns what batch does.
func (r *round) batchNow() model.Batch {
	use := &r.cpu.Use
	b := model.Batch{
		Running: slices.ContainsFunc(r.n.Pods, r.isBatch), AtFloor: r.state.Harm.lowFor(r.now, provenAtFloor),
	}
	b.Quiet = !b.Running || use.Measured && use.Age <= maxUseAge && use.Batch < r.quiet() &&
		!slices.ContainsFunc(r.n.Pods, r.starts)
	return b
}

// quiet returns the use below which batch is quiet, in milli-cores.
func (r *round) quiet() int64 { return min(r.cpu.Capacity*quietPart/1000, quietMilli) }

// starts reports whether the pod is a running batch pod of which it is not measured yet what it uses.
func (r *round) starts(pod *model.Pod) bool {
	if !r.isBatch(pod) {
		return false
	}
	u := r.n.Load.Pod(pod.UID)
	return u == nil || u.CPU.At == 0
}

// isBatch reports whether the pod is a running batch pod.
func (r *round) isBatch(pod *model.Pod) bool { return pod.Class == model.ClassBE && r.n.Runs(pod) }

// ask sets what the next rounds need observed, beside the figures of services.
func (r *round) ask() {
	s := &r.state
	switch {
	case len(s.Pods) == 0:
	case r.onHarm && !r.Batch.Quiet:
		r.Every = busyInterval
	case r.p.Protect.Interference && r.Batch.Running:
		r.Every = neighbourInterval
	case r.onHarm:
		r.Every = quietInterval
	}
	if r.Every > 0 {
		r.Waits = make([]model.WaitMark, 0, len(s.Pods))
	}
	// Where batch is pushed back as far as possible, or the pod's waits do not count, a further round could cut nothing.
	acts := r.onHarm && r.p.Mode == model.ModeEnforce && !r.Batch.Quiet && !r.atFloor
	tasks, unseen := false, false // online pods whose tasks are seen, or not
	for i := range s.Pods {
		p := &s.Pods[i]
		if !model.IsSystem(p.UID) {
			tasks, unseen = tasks || p.Tasks, unseen || !p.Tasks
		}
		if r.Every == 0 {
			continue
		}
		mark := model.WaitMark{PodWait: p.PodWait, Tolerated: p.Tolerated}
		if acts && p.Tasks && p.At != 0 && !p.Stopped && r.judges(p) {
			most := r.mostDebt(p)
			mark.Most = max(most-p.Debt, most/5)
		}
		r.Waits = append(r.Waits, mark)
	}
	r.Seconds = unseen && 0 < r.Every && r.Every <= neighbourInterval && !r.n.Tree.NoPressure
	r.NoSignal = !tasks && r.n.Tree.NoPressure && r.Harm.Blind != ""
	s.Every, s.Seconds = r.Every, r.Seconds
}
