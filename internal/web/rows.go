package web

import (
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

// state is what a node does, in one word.
type state string

// The states of a node.
const (
	silent    state = "silent"    // its report is too old, or has no time
	withdrawn state = "withdrawn" // the manager withdrew its offer: agent or kubelet are lost
	hot       state = "hot"       // it sells nothing although there may be an offer
	selling   state = "selling"   // it has an offer
	full      state = "full"      // it may sell and has nothing to sell
	enforcing state = "enforcing" // its policy is enforced, and sells nothing
	draining  state = "draining"  // a window of the policy ends soon
	closed    state = "closed"    // outside of the policy's windows
	observing state = "observing" // mode Observe: decided and reported, nothing is written
	disabled  state = "disabled"  // mode Disabled
)

// account is the account of one resource of a node: of CPU in milli-cores, of memory in MiB.
type account struct {
	capacity, ceiling, system, online, batch, offer, bound, allowance int64
	measured                                                          bool // the report has the account
	batchKnown                                                        bool // and what batch uses
}

// node is the known part of a NodeReport.
type node struct {
	revision uint64 // differs after each change of any node
	policy   string
	mode     string
	selling  string
	hot      string
	harm     string
	lost     bool // the offer is withdrawn
	changed  int64
	cpu      account
	memory   account
	unsold   bool // the policy sells neither CPU nor memory
	pressure *v1alpha1.PressureReport
}

// rows converts reports, and numbers the changes.
type rows struct{ revision atomic.Uint64 }

func (r *rows) read(o *v1alpha1.NodeReport) node {
	s := &o.Status
	n := node{
		revision: r.revision.Add(1), policy: s.Policy, mode: string(s.Mode), selling: string(s.Selling), hot: s.Hot,
		harm:     s.HarmSignal,
		lost:     kube.Withdrawn(o),
		cpu:      accountOf(s.CPU, milli),
		memory:   accountOf(s.Memory, mebi),
		unsold:   notSold(s.CPU) && notSold(s.Memory),
		pressure: s.Pressure.DeepCopy(),
	}
	if s.Changed != nil {
		n.changed = s.Changed.Unix()
	}
	return n
}

// notSold reports whether the policy does not sell a resource.
func notSold(r *v1alpha1.ResourceReport) bool { return r != nil && r.Reason == string(model.NotSold) }

func milli(q *resource.Quantity) int64 { return q.MilliValue() }

func mebi(q *resource.Quantity) int64 { return q.Value() >> 20 }

func accountOf(r *v1alpha1.ResourceReport, in func(*resource.Quantity) int64) account {
	if r == nil {
		return account{}
	}
	a := account{
		capacity: in(&r.Capacity), ceiling: in(&r.Ceiling), system: in(&r.System), online: in(&r.Online),
		offer: in(&r.Offer.Batch) + in(&r.Offer.Mid), bound: in(&r.Bound.Batch) + in(&r.Bound.Mid),
		allowance: in(&r.Allowance), measured: true,
	}
	if r.Batch != nil {
		a.batch, a.batchKnown = in(r.Batch), true
	}
	return a
}

// state returns what the node does now.
func (n *node) state(now time.Time) state {
	switch {
	case n.lost:
		return withdrawn
	case n.mode == string(model.ModeDisabled): // its report is not renewed
		return disabled
	case n.changed == 0 || now.Sub(time.Unix(n.changed, 0)) > model.ReportMaxAge:
		return silent
	case n.mode != string(model.ModeEnforce):
		return observing
	case n.hot != "":
		return hot
	case n.selling == string(model.SellClosed):
		return closed
	case n.selling == string(model.SellDraining):
		return draining
	case n.cpu.offer > 0 || n.memory.offer > 0:
		return selling
	case n.unsold:
		return enforcing
	}
	return full
}
