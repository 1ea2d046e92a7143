package model

import "time"

// Class is the QoS class of a pod in Waterline. It decides how the pod is protected, suppressed and counted.
type Class string

// The classes. A pod without a class is LS: Waterline treats every pod that is not known to be batch as an online
// service.
const (
	ClassLSE    Class = "LSE"    // latency-critical, on exclusive CPUs
	ClassLSR    Class = "LSR"    // latency-critical, on home CPUs
	ClassLS     Class = "LS"     // online
	ClassBE     Class = "BE"     // batch
	ClassSystem Class = "SYSTEM" // daemon of the node
)

// Online reports whether Waterline protects pods of this class.
func (c Class) Online() bool { return c != ClassBE && c != ClassSystem }

// Tier is the resource tier that a batch pod requests.
type Tier string

// The tiers. Mid resources are expected to stay available for a day, batch resources for an hour.
const (
	TierMid   Tier = "mid"
	TierBatch Tier = "batch"
)

// Amount is an amount of CPU in milli-cores and an amount of memory in bytes.
type Amount struct {
	CPU    int64
	Memory int64
}

// Plus returns the sum of two amounts.
func (a Amount) Plus(b Amount) Amount { return Amount{a.CPU + b.CPU, a.Memory + b.Memory} }

// SellMethod is the way in which an offer is computed.
type SellMethod string

// The methods. The zero value sells nothing.
const (
	SellStatic    SellMethod = "Static"    // a fixed part, or multiple, of the capacity
	SellRealtime  SellMethod = "Realtime"  // what online pods do not use now
	SellPredicted SellMethod = "Predicted" // what online pods will not use
)

// SellPolicy sets how far one resource may be used and how its slack is sold. Fractions are in thousandths.
type SellPolicy struct {
	Waterline int64      // fraction of the capacity that may be used
	Method    SellMethod // "": nothing is sold, and the reason shows what SellPredicted would sell
	Ratio     int64      // SellStatic: fraction of the capacity that is sold regardless of usage; may exceed 1000
	Mid       int64      // fraction of the room under the waterline that is offered as TierMid, at most
}

// Use is the current usage of one resource of a node by consumer, in milli-cores or bytes.
type Use struct {
	Age      time.Duration // of the oldest measurement in it that counts
	Measured bool          // false: nothing was measured yet
	System   int64         // processes outside pods
	Daemons  int64         // pods of class SYSTEM
	// CPU that the hypervisor gave to other machines; part of System, unless the kernel counts it as used by pods.
	Stolen        int64
	Online        int64 // all pods that are neither batch nor SYSTEM, and pod cgroups without a known pod
	Unmeasured    int64 // requests of online and SYSTEM pods without a measurement, beyond their measured usage
	IdleExclusive int64 // idle part of exclusive CPUs
	// Page cache that the protection of online pods keeps from batch, beyond their working set.
	Protected int64
	Batch     int64 // pods of class BE
	// Part of pods of class BE that no batch or mid resource pays for: their requests of CPU or memory itself, and the
	// memory that those use that request neither tier. CPU that they use is given to batch pods that request it.
	Unsold int64
}

// Horizon is how far ahead a peak is predicted.
type Horizon int

// The horizons.
const (
	Hour Horizon = iota
	Day
	Horizons // number of horizons
)

// Length returns the length of the horizon.
func (h Horizon) Length() time.Duration {
	if h == Day {
		return 24 * time.Hour
	}
	return time.Hour
}

// Peak is the predicted peak usage of online pods within a horizon, in milli-cores or bytes.
type Peak struct {
	Value   int64
	Known   bool          // false: too few or too old measurements; Value is a high estimate
	Age     time.Duration // of the newest sample in the prediction
	New     int64         // part of Value for pods too young to have a prediction of their own
	Margin  int64         // part of Value that makes up for past prediction errors
	Missed  int64         // fraction of past predictions that usage exceeded, in thousandths
	Checked int64         // number of quarter-hours that Missed was computed from
	// Learning: less than a day was measured. Value is then the usage of the last hour with a larger margin, or follows
	// from the requests if that is less.
	Learning bool `json:",omitempty"`
}

// OtherDays is the highest use of online pods on other days, in so many hours from now on, in milli-cores or bytes. 0:
// not known.
type OtherDays struct {
	FourHours  int64 `json:",omitempty"`
	EightHours int64 `json:",omitempty"`
}

// Account is the balance of one resource of a node, in milli-cores or bytes. System, Daemons, Online, Protected,
// Unsold, Mid and Batch together never exceed the Ceiling, except with SellStatic.
type Account struct {
	Capacity  int64 // of the machine, or of the Node object if that is less
	Ceiling   int64 // capacity up to the waterline
	Reserved  int64 // for the system, by the kubelet's settings
	Watermark int64 // memory that the kernel keeps free
	Use       Use
	Peaks     [Horizons]Peak
	Prod      [Horizons]int64 // amount counted for online pods: the higher of their usage and their peak
	Bound     TierAmounts     // requests of pods bound to the node
	Room      TierAmounts     // what could be sold per tier now, bound requests included
	Offer     TierAmounts     // what is sold per tier; follows Room down at once and up slowly
	Allow     int64           // what is left for batch now under the waterline
	Reason    Reason          // of the offer
}

// TierAmounts is one amount per tier.
type TierAmounts struct {
	Mid   int64
	Batch int64
}

// Slack is the balance of a node: the allowance and the offer of CPU and of memory.
type Slack struct {
	CPU    Account
	Memory Account
}

// NodeResource is an extended resource of the Node object that Waterline sells. Waterline's names are written by
// Waterline alone; Koordinator's names may belong to Koordinator, see [NodeObject].
type NodeResource struct {
	Tier        Tier
	Memory      bool // true: memory in bytes; false: CPU in milli-cores
	Koordinator bool // published under Koordinator's resource name
}

// Published is a resource of the Node object with its amount, the same in capacity and allocatable.
type Published struct {
	NodeResource
	Amount int64
}

// Uneven is the amount of a resource whose capacity and allocatable on the Node object differ, or of which one is
// missing.
const Uneven = -1

// Publication is the desired state of Waterline's resources on the Node object.
type Publication struct {
	Decided bool // false: the Node object stays as it is
	// All resources of Waterline that the Node should have, in the order of [NodeResources]; others are removed.
	Resources []Published
	Reason    Reason // why nothing is sold; zero: the offer is published
	Write     bool   // it differs from what the Node has, and is to be written now
}

// NodeResources returns every resource that Waterline may publish on a Node.
func NodeResources() []NodeResource {
	all := make([]NodeResource, 0, 8)
	for _, koordinator := range []bool{false, true} {
		for _, tier := range []Tier{TierMid, TierBatch} {
			all = append(all, NodeResource{tier, false, koordinator}, NodeResource{tier, true, koordinator})
		}
	}
	return all
}

// NodePressure is the part of the last minute in which some tasks of a node waited for each resource, in thousandths.
type NodePressure struct{ CPU, Memory, IO int64 }

// Report is the content of a node's NodeReport.
type Report struct {
	Policy      string // name of the policy that governs the node; "": none
	Generation  int64  // of that policy
	Mode        Mode
	Selling     SellState
	Slack       *Slack        `json:"-"`          // nil: nothing was measured yet
	OtherCPU    OtherDays     `json:",omitzero"`  // CPU that online pods used on other days
	OtherMemory OtherDays     `json:",omitzero"`  // memory, likewise
	CPUs        *CPURoom      `json:",omitempty"` // nil: not known, or no pod may have its own CPUs
	Unsupported []Code        // features of the policy that the node's kernel does not support
	Faults      []string      `json:",omitempty"` // what is wrong with how the node was set up, with what to do
	Starved     []string      `json:",omitempty"` // the node's own services that wait, where less batch does not help
	Harm        HarmSignal    // by which harm to online pods is known; "": it is not, or not searched
	Hot         Code          // why nothing is sold although there may be an offer; "": the node is not hot
	Evict       *Eviction     // batch pod that should leave the node; nil: none
	Unrestored  int64         // files that Waterline wrote in mode Enforce and has still to restore in another mode
	Pressure    *NodePressure `json:"-"` // nil: it is not known
	Throttled   *int64        `json:"-"` // CPU that batch pods requested and could not use, in milli-cores; nil: not known
	Write       bool          // it is to be written now
}
