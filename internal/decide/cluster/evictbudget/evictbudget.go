// Package evictbudget decides which of the pods that nodes ask for are evicted now: whether what was asked can be believed, and
// what the budgets allow.
//
// Nothing is decided on old data, and whatever is in doubt evicts nobody. A request counts from when it was seen to change, by
// the manager's own clock: the times in it are those of the node's. A manager that starts knows no history, so its
// budgets are empty and fill as time goes by.
package evictbudget

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// Settings are the budgets. Each holds for any time of the length Period.
type Settings struct {
	PerOwner int64 // pods of one workload
	All      int64 // pods in the cluster
	Period   time.Duration
}

// DefaultSettings are those of production.
func DefaultSettings() Settings { return Settings{PerOwner: 6, All: 120, Period: time.Hour} }

// How long things take.
const (
	old       = time.Minute      // after it last changed, a request counts no more
	blocked   = 20 * time.Second // after which a pod that could not be evicted is tried again; it doubles each time
	longest   = 5 * time.Minute  // the most that it becomes
	forgotten = time.Hour        // after which that is forgotten
	lateRound = 10 * time.Second // between two rounds, after which nobody knows what was missed
)

// Request is a pod that a node asks for.
type Request struct {
	Node    string
	Renewed string // what changes whenever the request is renewed
	UID     string // of the pod
	Code    model.Code

	Ready     bool  // the node's agent is ready
	Withdrawn bool  // nobody looks after the node
	PerNode   int64 // evictions that its policy allows within [Settings.Period]; 0: none
	Pod       Pod
}

// Pod is what the API shows of the pod that is asked for.
type Pod struct {
	Known   bool   // it was looked up; else nothing below is known
	UID     string // "": there is none of this name
	Node    string
	Owner   string
	Batch   bool // and neither ended nor kept from this
	Kept    bool // its owner, or its class, keeps it from being evicted
	Leaving bool
}

// Verdict is what becomes of a request.
type Verdict string

// The verdicts.
const (
	Evict      Verdict = "Evict"
	Leaving    Verdict = "Leaving"          // it leaves already
	Gone       Verdict = "Gone"             // there is no such pod any more
	NotSeen    Verdict = "NotSeenToChange"  // the request was there before us, and may be an old one
	TooOld     Verdict = "TooOld"           // it was not renewed for a minute
	NotAlive   Verdict = "NodeNotAlive"     // nobody looks after the node
	NotAllowed Verdict = "PolicyForbids"    // the node's policy has nobody evicted
	NotItsOwn  Verdict = "NotItsPod"        // the pod is not on this node
	NotBatch   Verdict = "NotBatch"         // it is not batch
	Kept       Verdict = "Kept"             // its owner does not want it to be evicted, or it is critical
	NodeSpent  Verdict = "BudgetOfNode"     // as many left this node as may
	OwnerSpent Verdict = "BudgetOfOwner"    // as many of this workload left as may
	AllSpent   Verdict = "BudgetOfCluster"  // as many left as may
	Waits      Verdict = "DisruptionBudget" // a PodDisruptionBudget kept it a moment ago
	Late       Verdict = "Late"             // it was not tried, because others took too long
	Failed     Verdict = "Failed"           // the API server could not do it a moment ago
)

// Verdicts lists all of them.
func Verdicts() []Verdict {
	return []Verdict{Evict, Leaving, Gone, NotSeen, TooOld, NotAlive, NotAllowed, NotItsOwn, NotBatch, Kept, NodeSpent, OwnerSpent, AllSpent, Waits, Late, Failed}
}

// Decision is what becomes of the request of one node.
type Decision struct {
	Request
	Verdict Verdict
}

// State is what must be known of earlier rounds. The zero value knows nothing.
type State struct {
	begun   bool
	start   time.Duration // when all budgets were empty
	watched time.Duration // when requests were last noted
	nodes   map[string]seen
	taken   []taken // within a period, in order
	blocked map[string]refusal
}

// seen is what was last seen of a node's request.
type seen struct {
	renewed string
	at      time.Duration // when it changed
	proven  bool          // it was seen to change
	judged  bool          // it was decided about since
}

// taken is one eviction that counts against the budgets.
type taken struct {
	at               time.Duration
	node, owner, uid string
}

// refusal is how often a pod could not be evicted.
type refusal struct {
	why   Verdict
	until time.Duration
	wait  time.Duration
}

// Watch notes which requests there are at a time, by a clock that only goes forward and is never set, and returns those of them
// whose pods are worth looking up. Requests are all that there are; a node without one is not among them. Nothing is to be noted
// while what is known of the API may be old.
func Watch(at time.Duration, requests []Request, s State) ([]Request, State) {
	next := s
	if !s.begun {
		next.begun, next.start = true, at
	}
	proven := s.begun && at-s.watched <= lateRound
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

// doubt returns why a request is not heeded, whatever its pod is; "": it is.
func (s *State) doubt(r *Request, at time.Duration) Verdict {
	n := s.nodes[r.Node]
	refused, held := s.blocked[r.UID]
	switch {
	case !r.Ready || r.Withdrawn:
		return NotAlive
	case !n.proven:
		return NotSeen
	case at-n.at > old:
		return TooOld
	case r.PerNode <= 0:
		return NotAllowed
	case held && at < refused.until:
		return refused.why
	}
	return ""
}

// Round decides about requests that were noted with [Watch] at the same time, of which those that are worth it have their pods
// looked up: once each time that they are renewed. What is to be evicted counts against the budgets from now on. It does not change the state that it is given.
func Round(at time.Duration, requests []Request, set Settings, s State) ([]Decision, State) {
	next := s
	next.nodes = maps.Clone(s.nodes)
	next.taken = slices.DeleteFunc(slices.Clone(s.taken), func(t taken) bool { return at-t.at >= set.Period })
	next.blocked = maps.Clone(s.blocked)
	maps.DeleteFunc(next.blocked, func(_ string, r refusal) bool { return at-r.until >= forgotten })
	ordered := slices.Clone(requests)
	slices.SortFunc(ordered, func(a, b Request) int {
		// Memory first: who starves can wait. Then nodes that had fewer evicted.
		return cmp.Or(cmp.Compare(urgency(a.Code), urgency(b.Code)), cmp.Compare(next.count(a.Node, ""), next.count(b.Node, "")), strings.Compare(a.Node, b.Node))
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
		if d.Verdict == Evict {
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

// judge decides about one request that is heeded.
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

// count returns how many evictions count against a node or an owner.
func (s *State) count(node, owner string) (n int64) {
	for i := range s.taken {
		if node != "" && s.taken[i].node == node || owner != "" && s.taken[i].owner == owner {
			n++
		}
	}
	return n
}

// filled returns how much of a budget there is: all of it, but for a manager that has just begun as much as belongs to the time
// since. What the one before it evicted is not known.
func (s *State) filled(budget int64, at time.Duration, set Settings) int64 {
	since := at - s.start
	if since >= set.Period || set.Period <= 0 {
		return budget
	}
	return int64(float64(budget) * float64(since) / float64(set.Period))
}

// Outcome is what came of an eviction that was tried.
type Outcome struct {
	UID string
	Why Verdict // Evict: it was done; Gone: there was no such pod; Waits: a PodDisruptionBudget kept it; Late: it was not tried; Failed: nobody knows
}

// Note takes in what came of evictions. One that surely did not happen counts against no budget.
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
		if o.Why == Waits || o.Why == Gone || o.Why == Late {
			if i := slices.IndexFunc(next.taken, func(t taken) bool { return t.uid == o.UID }); i >= 0 {
				next.taken = slices.Delete(next.taken, i, i+1)
			}
		}
		if o.Why == Waits || o.Why == Failed {
			wait := min(max(2*next.blocked[o.UID].wait, blocked), longest)
			next.blocked[o.UID] = refusal{why: o.Why, until: at + wait, wait: wait}
		}
	}
	return next
}
