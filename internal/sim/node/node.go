// Package node models a node with its agent in simulations. What its pods use goes in. The agent decides with package
// decide/node, as on a real node, and the API shows what it publishes and reports. The kernel gives online pods what
// they want, and batch pods the rest within their limit.
package node

import (
	"slices"
	"time"

	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
	decide "github.com/waterline-io/waterline/internal/decide/node"
	"github.com/waterline-io/waterline/internal/decide/node/slack"
	"github.com/waterline-io/waterline/internal/model"
)

// Dawn is the virtual midnight at which every simulated day begins. Times of a simulation are after it.
func Dawn() time.Time { return time.Date(2026, 11, 24, 0, 0, 0, 0, time.UTC) }

// Uptime is how long nodes have been up when the day begins.
const Uptime = 240 * time.Hour

// Node is a node with its agent.
type Node struct {
	Capacity model.Amount
	// View is what the agent observes, besides View.Load. The pods, and their cgroups in its Tree, are the caller's.
	View  model.Node
	Load  model.Load // View.Load is this one; its Pods are the caller's
	State decide.State

	// What the last round decided.
	Account *model.Slack // nil: there was none
	Peaks   slack.Peaks
	Limit   int64 // of batch by suppression, in milli-cores; -1: none
	Ceiling int64 // milli-cores up to the waterline

	// What the API shows.
	Offer    model.Amount     // of batch resources on the Node
	Reported [2]model.Account // of CPU and memory in the last report
}

// Use is what is used on a node: milli-cores, and bytes.
type Use struct {
	System model.Amount // by all but pods
	Online model.Amount // by online pods
	Batch  model.Amount // by batch pods, which are BestEffort
}

// New returns a node without pods, on cgroup v2 and without what no trace has: CPU sets, bursts, pressure.
func New(capacity, allocatable model.Amount) *Node {
	n := &Node{Capacity: capacity, Limit: -1, View: model.Node{
		Capacity: capacity, Allocatable: allocatable, PodsKnown: true,
		Kubelet: model.Kubelet{Known: true, CFSQuota: true},
		Tree: model.Tree{
			Guaranteed: "kubepods", Burstable: "kubepods/burstable", BestEffort: "kubepods/besteffort", V2: true,
			NoCpusets: true, NoBurst: true, NoIdle: true, NoReclaim: true, NoPressure: true,
			NoIdentity: "not simulated", NoProtection: "not simulated", Pods: map[string]model.PodGroup{},
		},
		Object: model.NodeObject{UID: "node"},
	}}
	n.View.Load = &n.Load
	n.Load.CPUMilli, n.Load.Memory = capacity.CPU, capacity.Memory
	return n
}

// At sets the clocks.
func (n *Node) At(now time.Duration) { n.Load.Clock, n.View.Now = now+Uptime, Dawn().Add(now) }

// Measure lets the agent measure what is used now.
func (n *Node) Measure(u Use) {
	all := u.Online.Plus(u.Batch)
	n.Load.Classes = [3]model.Usage{
		model.Guaranteed: n.Usage(all), model.Burstable: n.Usage(u.Online), model.BestEffort: n.Usage(u.Batch),
	}
	n.Load.Node = n.Usage(u.System.Plus(all))
}

// Usage is an amount as it is measured now.
func (n *Node) Usage(a model.Amount) model.Usage {
	return model.Usage{
		CPU:    model.CPUUsage{At: n.Load.Clock, Milli: a.CPU},
		Memory: model.MemoryUsage{At: n.Load.Clock, WorkingSet: a.Memory},
	}
}

// Left returns the milli-cores that batch pods can get: what the system and online pods leave, within the limit.
// Weights put online pods first.
func (n *Node) Left(system, online int64) int64 {
	left := n.Capacity.CPU - system - online
	if n.Limit >= 0 {
		left = min(left, n.Limit)
	}
	return left
}

// Decide lets the agent decide, and carries out the limit of batch and what is written to the API.
func (n *Node) Decide(p *model.Policy) model.Plan {
	var plan model.Plan
	plan, n.State = decide.Decide(n.View, *p, n.State)
	n.Limit, n.Ceiling = -1, n.Capacity.CPU
	if plan.Suppress != nil && p.Mode == model.ModeEnforce {
		n.Limit = plan.Suppress.Milli
	}
	if n.Account = plan.Slack; n.Account != nil {
		n.Ceiling = n.Account.CPU.Ceiling
		n.Peaks = slack.Peaks{CPU: n.Account.CPU.Peaks, Memory: n.Account.Memory.Peaks}
	}
	if plan.Publish.Write {
		n.View.Object.Published = slices.Clone(plan.Publish.Resources)
		n.Offer = offered(plan.Publish.Resources)
	}
	if plan.Report.Write {
		n.View.Object.Reported = true
		if plan.Report.Slack != nil {
			n.Reported = [2]model.Account{plan.Report.Slack.CPU, plan.Report.Slack.Memory}
		}
	}
	return plan
}

// offered returns the batch resources among published ones.
func offered(published []model.Published) (offer model.Amount) {
	for _, r := range published {
		switch {
		case r.Tier != model.TierBatch:
		case r.Memory:
			offer.Memory = r.Amount
		default:
			offer.CPU = r.Amount
		}
	}
	return offer
}

// Shown returns the node as the manager of a pool observes it.
func (n *Node) Shown() pool.Node {
	cpu, memory := &n.Reported[0], &n.Reported[1]
	return pool.Node{
		Selling: n.Offer != model.Amount{},
		Offer:   model.Amount{CPU: cpu.Offer.Batch, Memory: memory.Offer.Batch},
		Bound:   model.Amount{CPU: cpu.Bound.Batch, Memory: memory.Bound.Batch},
		Usable: model.Amount{
			CPU:    cpu.Allow - cpu.Bound.Mid - cpu.Bound.Batch,
			Memory: memory.Allow - memory.Bound.Mid - memory.Bound.Batch,
		},
	}
}
