package place

import (
	"math"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// Ledger remembers the pods that have a node and that the node's report does not include yet: their expected use, which
// fades, and the CPUs that were promised to them, which stay theirs until they leave. Times are on one monotonic clock.
// The zero value is empty. It is not safe for concurrent use.
type Ledger struct {
	pods  map[string]entry
	nodes map[string]*onNode
}

// onNode is what the ledger has of one node.
type onNode struct {
	pods map[string]bool // UIDs

	// The last sum of estimates, and what it depends on besides the pods. Scoring a pod asks for the sums of all nodes.
	summed       bool
	sum          model.Amount
	now, steady  time.Duration // it is the sum at now, and at any time up to steady
	hold, settle time.Duration
}

type entry struct {
	node     string
	at       time.Duration
	estimate model.Amount
	cpus     model.CPUSet
}

// Assume records that a pod has a node since a time, with the use that is expected of it. A pod that is on the node
// already keeps its time.
func (l *Ledger) Assume(node, uid string, at time.Duration, estimate model.Amount) {
	e := l.at(node, uid, at)
	n := l.nodes[node]
	if isNew := e.estimate == (model.Amount{}); n.summed && isNew && n.now-e.at <= n.hold {
		n.sum, n.steady = n.sum.Plus(estimate), min(n.steady, max(e.at+n.hold, n.now)) // as Load would find it
	} else {
		n.summed = false
	}
	e.estimate = estimate
	l.pods[uid] = e
}

// Promise records that a pod has a node since a time, with the CPUs that are promised to it. A pod that is on the node
// already keeps its time.
func (l *Ledger) Promise(node, uid string, at time.Duration, cpus model.CPUSet) {
	e := l.at(node, uid, at)
	e.cpus = cpus
	l.pods[uid] = e
}

// at returns the entry of a pod, which is on the node from now on.
func (l *Ledger) at(node, uid string, at time.Duration) entry {
	e, known := l.pods[uid]
	if known && e.node == node {
		return e
	}
	l.Forget(uid)
	if l.pods == nil {
		l.pods, l.nodes = map[string]entry{}, map[string]*onNode{}
	}
	if l.nodes[node] == nil {
		l.nodes[node] = &onNode{pods: map[string]bool{}}
	}
	l.nodes[node].pods[uid] = true
	return entry{node: node, at: at}
}

// Forget removes a pod that has left, or that did not get its node after all.
func (l *Ledger) Forget(uid string) {
	e, known := l.pods[uid]
	if !known {
		return
	}
	delete(l.pods, uid)
	n := l.nodes[e.node]
	delete(n.pods, uid)
	if n.summed = false; len(n.pods) == 0 {
		delete(l.nodes, e.node)
	}
}

// Prune forgets pods without promised CPUs whose estimates have faded.
func (l *Ledger) Prune(now time.Duration, s *Settings) {
	for uid, e := range l.pods {
		if e.cpus.Empty() && now-e.at >= s.Settle {
			l.Forget(uid)
		}
	}
}

// Load returns the use that is expected of the pods of a node beyond its report.
func (l *Ledger) Load(node string, now time.Duration, s *Settings) model.Amount {
	n := l.nodes[node]
	if n == nil {
		return model.Amount{}
	}
	if n.summed && n.now <= now && now <= n.steady && n.hold == s.Hold && n.settle == s.Settle {
		return n.sum
	}
	n.summed, n.sum, n.now, n.steady, n.hold, n.settle = true, model.Amount{}, now, math.MaxInt64, s.Hold, s.Settle
	for uid := range n.pods {
		e := l.pods[uid]
		n.sum = n.sum.Plus(fade(e.estimate, now-e.at, s))
		if now-e.at < s.Settle {
			n.steady = min(n.steady, max(e.at+s.Hold, now))
		}
	}
	return n.sum
}

// Steady returns until when the sum of a node stays what [Ledger.Load] has just returned, while its pods stay.
func (l *Ledger) Steady(node string) time.Duration {
	if n := l.nodes[node]; n != nil {
		return n.steady
	}
	return math.MaxInt64
}

// Promised returns the CPUs of a node that are promised to pods.
func (l *Ledger) Promised(node string) (cpus model.CPUSet) {
	n := l.nodes[node]
	if n == nil {
		return cpus
	}
	for uid := range n.pods {
		e := l.pods[uid]
		cpus = cpus.Or(e.cpus)
	}
	return cpus
}

// CPUs returns the CPUs that are promised to a pod.
func (l *Ledger) CPUs(uid string) model.CPUSet { return l.pods[uid].cpus }

// Empty reports whether the ledger has no pod on a node.
func (l *Ledger) Empty(node string) bool { return l.nodes[node] == nil }

// Node returns the node of a pod; "" if the ledger does not have the pod.
func (l *Ledger) Node(uid string) string { return l.pods[uid].node }

// Has reports whether the ledger has a pod on a node.
func (l *Ledger) Has(node, uid string) bool {
	e, known := l.pods[uid]
	return known && e.node == node
}

// Len returns the number of pods in the ledger.
func (l *Ledger) Len() int { return len(l.pods) }
