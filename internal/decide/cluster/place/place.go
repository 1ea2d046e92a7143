// Package place decides how well a pod fits a node, beyond the requests that Kubernetes counts: by the weights of the
// node's pods, by its real load, by its offer to batch pods, and by its free whole CPUs. The scheduler's plugins call
// it.
//
// Doubt never blocks an online pod. A node whose report is missing, old or unreadable scores as the stock scheduler
// would score it. Doubt does block batch: a batch pod can wait, and its node's agent must be there to hold it down.
package place

import (
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// MaxScore is the score of the best node. The worst has 0.
const MaxScore = 100

// Pod is a pod that needs a node.
type Pod struct {
	Weight   Weight
	Requests model.Amount  // of CPU in milli-cores and memory in bytes, as the stock scheduler scores them
	Batch    model.Amount  // requested of the tier batch
	Mid      model.Amount  // requested of the tier mid
	Lasts    time.Duration // longest time that it runs; 0: not known
}

// IsBatch reports whether the pod requests batch or mid resources.
func (p *Pod) IsBatch() bool { return p.Batch != (model.Amount{}) || p.Mid != (model.Amount{}) }

// Node is a node that could run the pod.
type Node struct {
	Allocatable model.Amount // of CPU in milli-cores and memory in bytes
	Requested   model.Amount // by its pods, as the stock scheduler scores them
	Sold        model.Amount // batch and mid resources that its pods request
	Report      *Report      // nil: there is none
	Unreadable  bool         // there is a report, but of another version
	Agent       Agent
	Assumed     model.Amount // estimated use of pods that the report does not include yet, see [Ledger]
}

// Agent is what is known of a node's agent.
type Agent struct {
	Unknown bool          // no agent is known in the whole cluster: its pods are not where they are looked for
	Gone    time.Duration // for how long it has not been ready; 0: it is ready
}

// Report is what a NodeReport says.
type Report struct {
	Age       time.Duration // since it changed
	CPU       Account       // in milli-cores
	Memory    Account       // in bytes
	Hot       string        // why the node takes no batch; "": it does
	Selling   model.SellState
	Withdrawn bool   // the manager has withdrawn the node's offer
	Zones     []Zone // free CPUs by NUMA node, ascending; nil: not reported
}

// Account is the account of one resource.
type Account struct {
	Capacity int64 // 0: nothing was measured yet
	Ceiling  int64 // capacity up to the waterline
	System   int64 // used by the system
	Online   int64 // used by online pods
	PeakHour int64 // highest use of online pods expected within an hour
	PeakDay  int64 // the same within a day
	// highest use of online pods on other days in the four and the eight hours from now on; 0: not known
	OtherFour, OtherEight int64
}

// Settings are the durations and bounds of all rules.
type Settings struct {
	// ReportMaxAge is the age from which a report no longer counts. A report is written when something changes, and 16 to
	// 24 minutes after the last time if nothing did.
	ReportMaxAge time.Duration
	// AgentGrace is how long an agent may be away, for example while it is updated, before its node takes no more batch
	// and its report no longer counts.
	AgentGrace time.Duration
	// Hold is how long the estimate of a pod counts in full after the pod got its node. Settle is when it has faded to
	// nothing, because the node's report includes the pod.
	Hold, Settle time.Duration
	// Estimate is the part of its request that a new pod is expected to use, in thousandths.
	Estimate int64
	// Least is the use expected of a new pod that requests nothing, or less than this.
	Least model.Amount
	// Hot is the part of a node's capacity from which its load scores 0, in thousandths.
	Hot int64
	// Met is the part of its expected CPU that each pod with a weight must keep, in thousandths.
	Met int64
}

// DefaultSettings returns the settings of production.
func DefaultSettings() Settings {
	return Settings{
		ReportMaxAge: model.ReportMaxAge, AgentGrace: 30 * time.Second,
		Hold: time.Minute, Settle: 5 * time.Minute, Estimate: 700,
		Least: model.Amount{CPU: 100, Memory: 128 << 20}, Hot: 850, Met: 900,
	}
}

// Trusted returns the node's report if what it measured counts, or else why it does not.
func (n *Node) Trusted(s *Settings) (*Report, Reason) {
	r, why := n.Current(s)
	if r != nil && (r.CPU.Capacity <= 0 || r.Memory.Capacity <= 0) {
		return nil, Reason{Code: ReportEmpty}
	}
	return r, why
}

// Current returns the node's report if it is readable, young enough and not orphaned, or else why it does not count.
// The free CPUs of such a report count, even if nothing was measured yet.
func (n *Node) Current(s *Settings) (*Report, Reason) {
	switch r := n.Report; {
	case n.Unreadable:
		return nil, Reason{Code: ReportUnreadable}
	case r == nil:
		return nil, Reason{Code: ReportMissing}
	case !n.Agent.Unknown && n.Agent.Gone > s.AgentGrace:
		return nil, reason(ReportOrphaned, seconds("gone", n.Agent.Gone), seconds("grace", s.AgentGrace))
	case r.Age > s.ReportMaxAge:
		return nil, reason(ReportOld, seconds("age", r.Age), seconds("most", s.ReportMaxAge))
	default:
		return r, Reason{}
	}
}

// StockScore returns the score of a node by requests alone: the mean of the free parts of CPU and memory once the pod
// is there. It is the default of the stock scheduler (NodeResourcesFit with LeastAllocated, both resources of weight 1,
// 1.36).
func StockScore(n *Node, p *Pod) int64 {
	var sum, weights int64
	for _, r := range []struct{ all, used int64 }{
		{n.Allocatable.CPU, n.Requested.CPU + p.Requests.CPU},
		{n.Allocatable.Memory, n.Requested.Memory + p.Requests.Memory},
	} {
		if r.all <= 0 {
			continue
		}
		weights++
		if r.used <= r.all {
			sum += (r.all - r.used) * MaxScore / r.all
		}
	}
	if weights == 0 {
		return 0
	}
	return sum / weights
}

// permille returns part / whole in thousandths; 0 of nothing.
func permille(part, whole int64) int64 {
	if whole <= 0 {
		return 0
	}
	return int64(float64(part) * 1000 / float64(whole))
}
