// Package contention decides how much CPU batch may use now, and why. The rules cpuset and quota enforce it, on batch
// pods only.
//
//	signal      what each online pod lacks, in milli-cores: by its tasks' waits, its pressure, or its service's figure
//	system      the node's own services, which are judged as pods are, and because of whom they wait
//	baseline    what it waits anyway: while batch is quiet, or although batch was pushed back
//	limit       the whole machine while nobody lacks CPU; down in proportion to the lack, up along a cubic
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

// Batch is quiet while it uses less than both: online pods then wait for themselves.
const (
	quietPart  = 10  // thousandths of the capacity
	quietMilli = 100 // milli-cores
)

// State is the state between rounds. Times are on the clock of [model.Load].
type State struct {
	Clock   time.Duration // of the last round
	Every   time.Duration // between two samples of waits, as the last plan asked; 0: it asked for none
	Seconds bool          // the last plan asked for the pressure of online pods each second
	Quiet   time.Duration // since when batch has been quiet; 0: it is not

	Pods      []Pod      `json:",omitempty"` // online pods that can lack CPU, and the node's services, ordered by UID
	Services  []Service  `json:",omitempty"` // that have a figure, ordered by UID
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
	n      *model.Node
	p      *model.Policy
	now    time.Duration
	since  time.Duration // the last round, as far as it counts
	cpu    *model.Account
	cpus   *model.CPUPlan // nil: no pod has CPUs of its own
	batch  model.Batch
	onHarm bool

	harm    *model.Harm
	lacked  []model.Lacked
	figures []serviceHarm
	figured []string // UIDs of pods whose figure is known
	fresh   string   // UID of a pod that uses CPU, and will be sampled in a moment
	harmed  []string // UIDs of harmed pods
	learned bool     // the baselines are a copy of this round

	state State
	limit int64 // of batch
	why   model.Reason
}

// Decide decides how much CPU batch may use, from what online pods lack and from what they leave. The limit is nil if
// batch is not limited, or if nothing was measured yet. cpus are the pods' own CPUs, nil if no pod has any.
func Decide(n *model.Node, p *model.Policy, left *model.Slack, cpus *model.CPUPlan, s State) (Result, State) {
	r := round{n: n, p: p, now: n.Load.Clock, cpu: &left.CPU, cpus: cpus, onHarm: p.Suppress.By == model.SuppressOnHarm}
	if s.Clock > r.now { // it is of another boot
		limit := arithmetic{Known: s.Arithmetic.Known, Milli: s.Arithmetic.Milli}
		s = State{Baselines: s.Baselines, Arithmetic: limit, CPUs: s.CPUs, Parts: s.Parts}
	}
	r.since = min(r.now-s.Clock, longestRound)
	r.state = s
	r.state.Clock = r.now
	r.batch = r.batchNow()
	result := Result{Batch: r.batch}
	if r.onHarm || p.Protect.Interference {
		r.signal(s)
		r.marks(&result)
	} else {
		r.state.Pods, r.state.Services, r.state.Quiet, r.state.Every, r.state.Seconds = nil, nil, 0, 0, false
	}
	if r.onHarm {
		result.Harm = r.harm
	} else {
		r.state.Harm = bearing{}
	}
	result.Limit = r.decide(left.Memory.Allow)
	return result, r.state
}

// longestRound is the longest time between two rounds that counts as time without harm.
const longestRound = 2 * time.Second

// batchNow returns what batch does.
func (r *round) batchNow() model.Batch {
	quiet := min(r.cpu.Capacity*quietPart/1000, quietMilli)
	b := model.Batch{
		Running: slices.ContainsFunc(r.n.Pods, func(pod *model.Pod) bool { return isRunning(&r.n.Tree, pod) }),
		AtFloor: r.state.Harm.lowFor(r.now, reached),
	}
	b.Quiet = !b.Running || r.cpu.Use.Measured && r.cpu.Use.Batch < quiet
	return b
}

// isRunning reports whether the pod is a running batch pod.
func isRunning(tree *model.Tree, pod *model.Pod) bool {
	if pod.Class != model.ClassBE || pod.Ended {
		return false
	}
	_, exists := tree.Pods[pod.UID]
	return exists
}

// marks sets what the next rounds need observed.
func (r *round) marks(result *Result) {
	s := &r.state
	result.Lacked = r.lacked
	switch searches := r.p.Protect.Interference && r.batch.Running; {
	case r.onHarm && !r.batch.Quiet:
		result.Every = often
	case searches:
		result.Every = interferes
	case r.onHarm:
		result.Every = seldom
	}
	act := r.onHarm && r.p.Mode == model.ModeEnforce && !r.batch.Quiet
	if len(s.Pods) == 0 {
		result.Every = 0
	}
	if result.Every > 0 {
		result.Waits = make([]model.WaitMark, 0, len(s.Pods))
	}
	for i := 0; i < len(s.Pods) && result.Every > 0; i++ {
		p := &s.Pods[i]
		mark := model.WaitMark{PodWait: p.PodWait, Tolerated: p.Tolerated}
		if act && p.Tasks && p.At != 0 && !p.Stopped {
			most := p.most(r.n.Load)
			mark.Most = max(most-p.Debt, most/5)
		}
		result.Waits = append(result.Waits, mark)
		result.Seconds = result.Seconds ||
			!p.Tasks && !model.IsSystem(p.UID) && result.Every <= interferes && !r.n.Tree.NoPressure
	}
	result.NoSignal = r.harm.Blind != "" && r.n.Tree.NoPressure &&
		!slices.ContainsFunc(s.Pods, func(p Pod) bool { return p.Tasks && !model.IsSystem(p.UID) })
	s.Every, s.Seconds = result.Every, result.Seconds
	if r.onHarm && r.batch.Running {
		result.Services = r.targets()
	}
}

// nameOf returns the name of a pod by its UID.
func (r *round) nameOf(uid string) string {
	if pod := model.FindPod(r.n.Pods, uid); pod != nil {
		return pod.Namespace + "/" + pod.Name
	}
	return uid
}
