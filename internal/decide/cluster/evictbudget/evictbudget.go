// Package evictbudget decides which of the evictions that nodes request happen now: whether a request is credible,
// and whether the budgets allow it.
//
// Nothing is decided on old data, and in doubt no pod is evicted. The age of a request counts from its last observed
// change, on the manager's own clock: times in the request come from the node's clock. A manager that starts continues
// with the evictions that its predecessor recorded. Without a record it knows no history, so its budgets start empty
// and fill over time.
package evictbudget

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// Settings are the budgets. Each applies to any interval of length Period.
type Settings struct {
	PerOwner int64 // pods of one workload
	All      int64 // pods in the cluster
	Period   time.Duration
}

// DefaultSettings returns the settings of production.
func DefaultSettings() Settings { return Settings{PerOwner: 6, All: 120, Period: time.Hour} }

// Durations.
const (
	maxRequestAge = time.Minute      // a request without a change for this long no longer counts
	minRetry      = 20 * time.Second // delay until a failed eviction is tried again; it doubles each time
	maxRetry      = 5 * time.Minute  // maximum of that delay
	failureTTL    = time.Hour        // a failure is forgotten this long after its delay
	maxRoundGap   = 10 * time.Second // after a longer time between two rounds, changes may have been missed
	drainTimeout  = 5 * time.Minute  // for so long a pool may drain its worker before the pod is evicted like others
)

// Request is a node's request to evict a pod.
type Request struct {
	Node    string
	Renewed string // changes whenever the node renews the request
	UID     string // of the pod
	Code    model.Code

	Ready     bool  // the node's agent is ready
	Withdrawn bool  // the node's offer is withdrawn because its agent or kubelet is lost
	PerNode   int64 // evictions that the node's policy allows within [Settings.Period]; 0: none
	Pod       Pod
}

// Pod is the requested pod as the API shows it.
type Pod struct {
	Known   bool   // it was looked up; otherwise the other fields are not known
	UID     string // "": no pod of this name
	Node    string
	Owner   string
	Batch   bool // it is batch and has not ended
	Kept    bool // its owner or its priority class forbids the eviction
	Leaving bool
	Worker  bool // it is a worker of a pool, which drains it when the eviction is granted
}

// Verdict is the result for a request.
type Verdict string

// The verdicts.
const (
	Evict      Verdict = "Evict"
	Drains     Verdict = "PoolDrains"       // it is granted, and the worker's pool drains it: its containers end first
	Leaving    Verdict = "Leaving"          // the pod is leaving already
	Gone       Verdict = "Gone"             // the pod no longer exists
	NotSeen    Verdict = "NotSeenToChange"  // the request existed before this manager and may be old
	TooOld     Verdict = "TooOld"           // the request was not renewed for a minute
	NotAlive   Verdict = "NodeNotAlive"     // the node's agent is not ready, or the node's offer is withdrawn
	NotAllowed Verdict = "PolicyForbids"    // the node's policy allows no evictions
	NotItsOwn  Verdict = "NotItsPod"        // the pod is not on this node
	NotBatch   Verdict = "NotBatch"         // the pod is not batch
	Kept       Verdict = "Kept"             // its owner forbids the eviction, or it is critical
	NodeSpent  Verdict = "BudgetOfNode"     // the node's budget is used up
	OwnerSpent Verdict = "BudgetOfOwner"    // the workload's budget is used up
	AllSpent   Verdict = "BudgetOfCluster"  // the cluster's budget is used up
	Waits      Verdict = "DisruptionBudget" // a PodDisruptionBudget blocked it a moment ago
	Late       Verdict = "Late"             // not tried, because other evictions took too long
	Unrecorded Verdict = "NotRecorded"      // not tried, because it could not be recorded for the next leader a moment ago
	Failed     Verdict = "Failed"           // the API server could not do it a moment ago
)

// Verdicts lists all verdicts.
func Verdicts() []Verdict {
	return []Verdict{
		Evict, Drains, Leaving, Gone, NotSeen, TooOld, NotAlive, NotAllowed, NotItsOwn, NotBatch, Kept,
		NodeSpent, OwnerSpent, AllSpent, Waits, Late, Unrecorded, Failed,
	}
}

// Decision is the result for the request of one node.
type Decision struct {
	Request
	Verdict Verdict
	New     bool // the verdict is [Drains], and counts against the budgets from now on
}

// State is the state between rounds. The zero value knows nothing.
type State struct {
	begun   bool
	resumed bool          // the evictions of its predecessor are known
	start   time.Duration // when all budgets were empty
	watched time.Duration // time of the last [Watch]
	nodes   map[string]seen
	taken   []taken // within a period, in order
	blocked map[string]refusal
}

// seen is the last observed request of a node.
type seen struct {
	renewed string
	at      time.Duration // time of its last change
	proven  bool          // the change was observed
	judged  bool          // it was decided since
}

// taken is one eviction that counts against the budgets.
type taken struct {
	at               time.Duration
	node, owner, uid string
}

// Past is an eviction that counts against the budgets, as one manager leaves it to the next.
type Past struct {
	Ago   time.Duration `json:"-"`
	Node  string        `json:"node"`
	Owner string        `json:"owner"`
	UID   string        `json:"uid"` // of the pod
}

// Resume returns the state of a manager that starts at a time and knows the evictions of the last period. No evictions
// at all are an empty list.
func Resume(at time.Duration, past []Past) State {
	s := State{resumed: true}
	for _, p := range past {
		s.taken = append(s.taken, taken{at - max(p.Ago, 0), p.Node, p.Owner, p.UID})
	}
	slices.SortStableFunc(s.taken, func(a, b taken) int { return cmp.Compare(a.at, b.at) })
	return s
}

// Counting returns the evictions that count against the budgets at a time, for [Resume].
func (s *State) Counting(at time.Duration) []Past {
	past := make([]Past, 0, len(s.taken))
	for _, t := range s.taken {
		past = append(past, Past{at - t.at, t.node, t.owner, t.uid})
	}
	return past
}

// refusal is a failed eviction of a pod.
type refusal struct {
	why   Verdict
	until time.Duration
	wait  time.Duration
}

// Watch records the current requests, and returns those whose pods should be looked up. at is a time on a monotonic
// clock. requests are all requests; a node without one is absent. Watch must not be called while the view of the API
// may be old.
func Watch(at time.Duration, requests []Request, s State) ([]Request, State) {
	next := s
	if !s.begun {
		next.begun, next.start = true, at
	}
	proven := s.begun && at-s.watched <= maxRoundGap
	next.watched = at
	next.nodes = make(map[string]seen, len(requests))
	var worth []Request
	for _, r := range requests {
		now := seen{renewed: r.Renewed, at: at, proven: proven}
		if before, known := s.nodes[r.Node]; known && before.renewed == r.Renewed {
			now = before
		}
		next.nodes[r.Node] = now
		if !now.judged && next.doubt(&r, at) == "" {
			worth = append(worth, r)
		}
	}
	return worth, next
}

// doubt returns why a request does not count, regardless of its pod; "": it counts.
func (s *State) doubt(r *Request, at time.Duration) Verdict {
	n := s.nodes[r.Node]
	refused, before := s.blocked[r.UID]
	switch {
	case !r.Ready || r.Withdrawn:
		return NotAlive
	case !n.proven:
		return NotSeen
	case at-n.at > maxRequestAge:
		return TooOld
	case r.PerNode <= 0:
		return NotAllowed
	case before && at < refused.until:
		return refused.why
	}
	return ""
}

// Round decides the requests that were recorded with [Watch] at the same time. The pods of the requests that Watch
// returned must be looked up. Each renewal of a request is decided once. Evictions count against the budgets from now
// on. Round does not change s.
func Round(at time.Duration, requests []Request, set Settings, s State) ([]Decision, State) {
	next := s
	next.nodes = maps.Clone(s.nodes)
	next.taken = slices.DeleteFunc(slices.Clone(s.taken), func(t taken) bool { return at-t.at >= set.Period })
	next.blocked = maps.Clone(s.blocked)
	maps.DeleteFunc(next.blocked, func(_ string, r refusal) bool { return at-r.until >= failureTTL })
	ordered := slices.Clone(requests)
	slices.SortFunc(ordered, func(a, b Request) int {
		// Memory first, because starving pods can wait; then nodes with fewer evictions.
		return cmp.Or(
			cmp.Compare(urgency(a.Code), urgency(b.Code)),
			cmp.Compare(next.count(a.Node, ""), next.count(b.Node, "")),
			strings.Compare(a.Node, b.Node),
		)
	})
	var decisions []Decision
	for _, r := range ordered {
		d := Decision{Request: r, Verdict: next.doubt(&r, at)}
		if n := next.nodes[r.Node]; d.Verdict == "" {
			if n.judged {
				continue
			}
			n.judged = true
			next.nodes[r.Node] = n
			d.Verdict = next.judge(&r, at, set)
		}
		granted := r.Pod.Worker && next.granted(r.UID)
		if d.Verdict == Evict && r.Pod.Worker && !granted {
			d.Verdict, d.New = Drains, true
		}
		if d.Verdict == Evict && !granted || d.New {
			next.taken = append(next.taken, taken{at, r.Node, r.Pod.Owner, r.UID})
		}
		decisions = append(decisions, d)
	}
	return decisions, next
}

func urgency(c model.Code) int {
	if c == model.MemoryExhausted {
		return 0
	}
	return 1
}

// judge decides a request that counts.
func (s *State) judge(r *Request, at time.Duration, set Settings) Verdict {
	p := &r.Pod
	switch {
	case !p.Known:
		return Failed
	case p.UID == "" || p.UID != r.UID:
		return Gone
	case p.Node != r.Node:
		return NotItsOwn
	case !p.Batch:
		return NotBatch
	case p.Kept:
		return Kept
	case p.Leaving:
		return Leaving
	case p.Worker && s.drains(r.UID, at):
		return Drains
	case p.Worker && s.granted(r.UID):
		return Evict // it counts already
	}
	spent := func(n, budget int64) bool { return n >= s.filled(budget, at, set) }
	switch {
	case spent(s.count(r.Node, ""), r.PerNode):
		return NodeSpent
	case spent(s.count("", p.Owner), set.PerOwner):
		return OwnerSpent
	case spent(int64(len(s.taken)), set.All):
		return AllSpent
	}
	return Evict
}

// granted reports whether an eviction of a pod counts against the budgets.
func (s *State) granted(uid string) bool {
	return slices.ContainsFunc(s.taken, func(t taken) bool { return t.uid == uid })
}

// drains reports whether the eviction of a worker was granted a moment ago, and its pool may still drain it.
func (s *State) drains(uid string, at time.Duration) bool {
	return slices.ContainsFunc(s.taken, func(t taken) bool { return t.uid == uid && at-t.at < drainTimeout })
}

// count returns the number of evictions that count against a node or an owner.
func (s *State) count(node, owner string) (n int64) {
	for i := range s.taken {
		if node != "" && s.taken[i].node == node || owner != "" && s.taken[i].owner == owner {
			n++
		}
	}
	return n
}

// filled returns the available part of a budget: all of it, or for a manager that started within the period, the part
// that belongs to the time since. The evictions of its predecessor are not known.
func (s *State) filled(budget int64, at time.Duration, set Settings) int64 {
	since := at - s.start
	if s.resumed || since >= set.Period || set.Period <= 0 {
		return budget
	}
	return int64(float64(budget) * float64(since) / float64(set.Period))
}

// Outcome is the result of an eviction.
type Outcome struct {
	UID string
	// Why is Evict if the pod was evicted, Gone if it did not exist, Waits if a PodDisruptionBudget blocked the
	// eviction, Late or Unrecorded if it was not tried, and Failed if the result is not known.
	Why Verdict
}

// Note records the results of evictions. An eviction that certainly did not happen counts against no budget.
func Note(at time.Duration, outcomes []Outcome, s State) State {
	next := s
	next.taken, next.blocked = slices.Clone(s.taken), maps.Clone(s.blocked)
	if next.blocked == nil {
		next.blocked = map[string]refusal{}
	}
	for _, o := range outcomes {
		if o.Why == Evict {
			delete(next.blocked, o.UID)
			continue
		}
		if o.Why == Waits || o.Why == Gone || o.Why == Late || o.Why == Unrecorded {
			if i := slices.IndexFunc(next.taken, func(t taken) bool { return t.uid == o.UID }); i >= 0 {
				next.taken = slices.Delete(next.taken, i, i+1)
			}
		}
		if o.Why == Waits || o.Why == Unrecorded || o.Why == Failed {
			wait := min(max(2*next.blocked[o.UID].wait, minRetry), maxRetry)
			next.blocked[o.UID] = refusal{why: o.Why, until: at + wait, wait: wait}
		}
	}
	return next
}
