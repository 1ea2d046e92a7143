package model

import "time"

// Class is what a pod is for, which decides what is done for it and to it.
type Class string

// The classes. A pod that says nothing is LS: whoever is not known to be batch is treated as an online service.
const (
	ClassLSE    Class = "LSE"    // latency-critical, on CPUs of its own
	ClassLSR    Class = "LSR"    // latency-critical, on home CPUs
	ClassLS     Class = "LS"     // online
	ClassBE     Class = "BE"     // batch
	ClassSystem Class = "SYSTEM" // a daemon of the node
)

// Online reports whether pods of this class are what is protected.
func (c Class) Online() bool { return c != ClassBE && c != ClassSystem }

// Tier is as what the slack is sold that a batch pod runs on.
type Tier string

// The tiers. What is sold as mid is expected to be there for a day, what is sold as batch for an hour.
const (
	TierMid   Tier = "mid"
	TierBatch Tier = "batch"
)

// Amount is an amount of CPU in milli-cores and one of memory in bytes.
type Amount struct {
	CPU    int64
	Memory int64
}

// SellMethod is how an offer is found.
type SellMethod string

// The methods. The zero value sells nothing.
const (
	SellStatic    SellMethod = "Static"    // a fixed part, or multiple, of the capacity
	SellRealtime  SellMethod = "Realtime"  // what online pods do not use now
	SellPredicted SellMethod = "Predicted" // what online pods will not use
)

// SellPolicy is how far one resource is filled, and how its slack is sold. Parts are in thousandths.
type SellPolicy struct {
	Waterline int64      // of the capacity, up to which the node is filled
	Method    SellMethod // "": nothing is sold, and what could be is found as by SellPredicted
	Ratio     int64      // SellStatic: of the capacity, which is sold whatever is used; may be above 1000
	Mid       int64      // of the room under the waterline, the most that is offered as TierMid
}

// Use is who uses a resource of a node now, in milli-cores or bytes.
type Use struct {
	Age        time.Duration // of the oldest measurement in it that counts
	Measured   bool          // false: nothing was measured yet
	System     int64         // what is not in pods, and pods of class SYSTEM
	Stolen     int64         // what the hypervisor gave to others: in System, unless the kernel counts it as used by pods
	Online     int64         // all pods that are neither batch nor SYSTEM; groups that no pod is known for too
	Unmeasured int64         // requests of pods that are not batch and were not measured yet, beyond what they use
	Whole      int64         // what pods leave unused of CPUs that are theirs alone
	Batch      int64         // pods of class BE
}

// Horizon is how far ahead a peak is predicted.
type Horizon int

// The horizons.
const (
	Hour Horizon = iota
	Day
	Horizons // how many there are
)

// Length returns how long the horizon is.
func (h Horizon) Length() time.Duration {
	if h == Day {
		return 24 * time.Hour
	}
	return time.Hour
}

// Peak is the most that online pods are expected to use within a horizon, in milli-cores or bytes.
type Peak struct {
	Value   int64
	Known   bool          // false: too little was measured, or too long ago, and Value is a guess on the high side
	Age     time.Duration // of the last thing that was learned
	New     int64         // part of Value for pods that were not here long enough to be known
	Margin  int64         // part of Value that past errors asked for
	Missed  int64         // share of past predictions that were exceeded, in thousandths
	Checked int64         // quarter-hours that Missed rests on
}

// Account is where one resource of a node goes, in milli-cores or bytes. What is promised as System, Online, Mid, Batch and
// Pools is never more than the Ceiling, but for SellStatic.
type Account struct {
	Capacity int64 // of the machine; or of the Node object where that says less
	Ceiling  int64 // up to which the node is filled
	Reserved int64 // for the system, by the kubelet's settings
	Kept     int64 // memory that the kernel keeps free
	Use      Use
	Peaks    [Horizons]Peak
	Prod     [Horizons]int64 // what online pods are counted with: the highest of their use and their peak
	Bound    TierAmounts     // requested by pods that are bound to the node
	Pools    int64           // held by worker pools beyond what their pods requested
	Room     TierAmounts     // what could be sold in all of each tier now, bound requests included
	Offer    TierAmounts     // what is sold in all of each tier, which follows Room down at once and up slowly
	Allow    int64           // the allowance: what batch may use now
	Reason   Reason          // of the offer
}

// TierAmounts is an amount for each tier.
type TierAmounts struct {
	Mid   int64
	Batch int64
}

// Slack is what a node could give to batch.
type Slack struct {
	CPU    Account
	Memory Account
}

// NodeResource is a resource of the Node object that is sold, and which only we write.
type NodeResource struct {
	Tier        Tier
	Memory      bool // in bytes; else CPU in milli-cores
	Koordinator bool // under the name that Koordinator gives it
}

// Published is a resource that stands on the Node object, as capacity and as allocatable, with its amount.
type Published struct {
	NodeResource
	Amount int64
}

// Uneven is the amount of a resource that does not stand on the Node as both capacity and allocatable, or not with the same
// amount.
const Uneven = -1

// Publication is what is to stand on the Node object.
type Publication struct {
	Decided   bool        // false: what stands there stays
	Resources []Published // all of ours that are to stand there, in the order of [NodeResources]; no other does
	Reason    Reason      // why nothing is sold; zero: the offer stands there
	Write     bool        // it differs from what stands there, and is to be written now
}

// NodeResources returns every resource that may stand on a Node.
func NodeResources() []NodeResource {
	all := make([]NodeResource, 0, 8)
	for _, koordinator := range []bool{false, true} {
		for _, tier := range []Tier{TierMid, TierBatch} {
			all = append(all, NodeResource{tier, false, koordinator}, NodeResource{tier, true, koordinator})
		}
	}
	return all
}

// Report is what a node tells the cluster about itself.
type Report struct {
	Policy      string // that governs the node; "": none does
	Generation  int64  // of that policy
	Mode        Mode
	Selling     SellState
	Slack       *Slack    `json:"-"` // nil: nothing was measured yet
	Unsupported []Code    // what the policy asks for and the node's kernel cannot do
	Hot         Code      // why nothing is sold although there may be an offer; "": the node is not hot
	Evict       *Eviction // the batch pod that should leave; nil: none
	Write       bool      // it is to be written now
}
