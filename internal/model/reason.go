package model

import (
	"fmt"
	"strings"
)

// Code says in one word why something was decided. Each appears in a golden case and in docs/reasons.md.
type Code string

// Why a value was chosen.
const (
	Weighted         Code = "Weighted"         // the pod's annotation asks for this weight
	WeightedByPolicy Code = "WeightedByPolicy" // a rule of the policy gives the pod this weight
	WeightClamped    Code = "WeightClamped"    // the weight asked for is above what the policy allows in this namespace
	WeightCapped     Code = "WeightCapped"     // more would take CPU that Guaranteed pods were promised
	AgentFirst       Code = "AgentFirst"       // the agent's own pod must run when the node is busiest
	CriticalKept     Code = "CriticalKept"     // a system-critical pod keeps its fraction of its class while others grow
	SumOfPods        Code = "SumOfPods"        // a QoS class weighs what its pods weigh together
	QuotaLifted      Code = "QuotaLifted"      // the pod asks to be limited by its weight only
	QuotaNeedless    Code = "QuotaNeedless"    // the container has CPUs for itself alone, and they are all that it may use
	BatchWeight      Code = "BatchWeight"      // what the batch CPU weighs that the pod or container asks for
	BatchIdle        Code = "BatchIdle"        // the policy lets the batch pod run only when no pod beside it wants to
	GroupIdentity    Code = "GroupIdentity"    // the policy has the kernel told who is online and who is batch
	OnlineKept       Code = "OnlineKept"       // a BestEffort pod that is not batch weighs as much as all batch pods beside it
	BatchQuota       Code = "BatchQuota"       // the CPU limit that a batch pod or container came with
	BurstAllowed     Code = "BurstAllowed"     // the pod or container may save up quota that it does not use, as much as its limit
	QuotaRaised      Code = "QuotaRaised"      // the container was stopped at its limit and had left CPU unused before, so it may use more for a while
	NodeHot          Code = "NodeHot"          // nobody bursts: nothing is left under the waterline, or was a moment ago, or nobody knows
	BatchMemory      Code = "BatchMemory"      // the memory limit that a batch pod or container came with, or what it asks for
	MemoryProtected  Code = "MemoryProtected"  // the online pod keeps the memory that it requests
	MemoryCarried    Code = "MemoryCarried"    // what pods below use of the memory that they keep, without which they would not
	MemoryLimited    Code = "MemoryLimited"    // the batch pod may not grow, because little memory is left for batch
	MemoryReclaimed  Code = "MemoryReclaimed"  // the batch pod is asked for page cache, because little memory is left for batch
	PodFrozen        Code = "PodFrozen"        // the batch pod stands still for moments, because no memory is left for batch and it is to leave
	KubeletValue     Code = "KubeletValue"     // given back: what the kubelet computes from the pod's current spec
	RecordedValue    Code = "RecordedValue"    // given back: the newest value that somebody else had written
	LastKnown        Code = "LastKnown"        // the pods are not known yet, or nothing is measured: the last value decided stays
	IdleGroup        Code = "IdleGroup"        // held: cpu.idle is set, where the kernel refuses a weight
	MemoryInUse      Code = "MemoryInUse"      // held: the group uses more than the limit, which would get processes killed
	RejectedByKernel Code = "RejectedByKernel" // held: the kernel refused this value and nothing has changed since
	ForeignWriter    Code = "ForeignWriter"    // held: another writer fights for this file; answered once a second
	BadAnnotation    Code = "BadAnnotation"    // the annotation's value cannot be used; the pod keeps its defaults
	BadLabel         Code = "BadLabel"         // the label's value cannot be used; the pod is treated as an online service
	BothSpellings    Code = "BothSpellings"    // two spellings of one annotation or label stand on the pod; ours wins
	NoPodCgroups     Code = "NoPodCgroups"     // this node has no cgroup per pod, so there is nothing to weight
	ObserveOnly      Code = "ObserveOnly"      // held: the policy decides and reports but writes nothing
	ReadOnlyMount    Code = "ReadOnlyMount"    // held: the cgroup file system is mounted read-only
)

// Why a group may run on which CPUs, and why a pod does not have the CPUs that it asks for.
const (
	CPUsExclusive    Code = "CPUsExclusive"    // these CPUs are the pod's alone
	CPUsShare        Code = "CPUsShare"        // these CPUs are the pod's home; others may run there too
	CPUsShared       Code = "CPUsShared"       // all CPUs that are nobody's alone
	CPUsOfClass      Code = "CPUsOfClass"      // all CPUs that are not those of a pod outside of this QoS class alone
	CPUsOfPod        Code = "CPUsOfPod"        // all CPUs of the pod's containers together
	CPUsNotWhole     Code = "CPUsNotWhole"     // no container has a CPU limit that is a whole number of CPUs
	CPUsNotRequested Code = "CPUsNotRequested" // the CPU limit is not also requested, so others were promised these CPUs
	CPUsTooMany      Code = "CPUsTooMany"      // more than this node could ever give
	CPUsTaken        Code = "CPUsTaken"        // not enough CPUs are free of other pods' own
	CPUsPromised     Code = "CPUsPromised"     // the other pods' CPU requests would not fit into the rest
	CPUsSplitCores   Code = "CPUsSplitCores"   // pcpu-only, but not to be had in whole physical cores
	CPUsOfKubelet    Code = "CPUsOfKubelet"    // the kubelet's static policy gives this pod CPUs itself
	CPUsLost         Code = "CPUsLost"         // the pod's own CPUs went offline, or the kubelet gave them to another
	CPUsUnknown      Code = "CPUsUnknown"      // which CPUs this node may give is not known
	CPUsUnsupported  Code = "CPUsUnsupported"  // this node has no cpuset controller
	CPUsMoveLater    Code = "CPUsMoveLater"    // too many running pods were given other CPUs within a minute
	CPUsConfined     Code = "CPUsConfined"     // a parent cgroup, which is not ours, allows other CPUs only
	MemoryTooLarge   Code = "MemoryTooLarge"   // the memory limit does not fit the NUMA nodes of the CPUs
)

// Which policy governs a node, why another does not, and why nothing is sold.
const (
	PolicyGoverns      Code = "PolicyGoverns"      // of those that select the node it ranks highest
	PolicyDefaults     Code = "PolicyDefaults"     // none selects the node: the defaults hold
	PolicyNotSelected  Code = "PolicyNotSelected"  // its selector does not choose the node
	PolicyNotRolledOut Code = "PolicyNotRolledOut" // it selects the node, but is not rolled out to it yet
	PolicyOutranked    Code = "PolicyOutranked"    // it selects the node, and another one ranks higher
	NodeOptedOut       Code = "NodeOptedOut"       // the node's label keeps Waterline off it
	WindowDraining     Code = "WindowDraining"     // the window ends soon: nothing new is sold
	WindowClosed       Code = "WindowClosed"       // outside of all windows: nothing is sold
)

// Why so much of a node's slack is sold.
const (
	SoldPredicted  Code = "SoldPredicted"  // what is left under the waterline beside the peak that is predicted
	SoldRealtime   Code = "SoldRealtime"   // what is left under the waterline beside what is used now
	SoldFixed      Code = "SoldFixed"      // the part of the capacity that the policy says, whether it is there or not
	NotSold        Code = "NotSold"        // the policy sells nothing
	OfferWithdrawn Code = "OfferWithdrawn" // the manager lets the node sell nothing
	OfferRestless  Code = "OfferRestless"  // more could be sold, but the offer fell often: it is watched for longer, and a margin is kept
	OfferGrows     Code = "OfferGrows"     // more could be sold, which is watched first and then offered little by little
	SlackNone      Code = "SlackNone"      // nothing is left under the waterline
	SlackDoubted   Code = "SlackDoubted"   // the measurements are old, and are worth less and less
	SlackUnknown   Code = "SlackUnknown"   // nothing was measured yet
)

// Why batch may use so much CPU, and how that is carried out.
const (
	BatchAllowed    Code = "BatchAllowed"    // what online pods leave under the waterline
	BatchGrows      Code = "BatchGrows"      // more is left, which batch is given little by little
	BatchWaits      Code = "BatchWaits"      // more is left, but batch was given less, or online pods waited, a moment ago
	BatchMinimum    Code = "BatchMinimum"    // what batch keeps by policy, though online pods leave less
	OnlineRose      Code = "OnlineRose"      // online pods, or the system, suddenly use more
	OnlineWaits     Code = "OnlineWaits"     // online pods wait for CPUs, so a part is withheld
	BatchSuppressed Code = "BatchSuppressed" // the pod's part of what all batch may use
	BatchCPUs       Code = "BatchCPUs"       // on so many CPUs fits what batch may use
)

// What a policy asks for and the node's kernel cannot do.
const (
	NoBurst            Code = "NoBurst"            // online pods cannot save up quota
	NoIdle             Code = "NoIdle"             // batch pods cannot be made idle: they keep their weights
	NoGroupIdentity    Code = "NoGroupIdentity"    // the kernel cannot be told who is online and who is batch, or must not be
	NoMemoryProtection Code = "NoMemoryProtection" // memory of online pods cannot be protected, or the kubelet does it
	NoReclaim          Code = "NoReclaim"          // no batch pod can be asked for memory before it is short
	NoPressure         Code = "NoPressure"         // whether online pods wait for CPUs is not known: what batch may use follows from what they use alone
)

// Whom an online pod waits for, and why batch is throttled for it.
const (
	SuspectNamed   Code = "SuspectNamed"   // the use of a batch pod goes with the waiting
	SuspectOnline  Code = "SuspectOnline"  // the use of a pod that is not batch goes with the waiting: it is never throttled
	VictimItself   Code = "VictimItself"   // the pod's own load goes with its waiting: nobody is to blame
	SuspectUnknown Code = "SuspectUnknown" // nobody stands out, or not for long enough
	ThrottleTried  Code = "ThrottleTried"  // the pod is kept to less, to see whether the other then waits less
	ThrottleKept   Code = "ThrottleKept"   // it does
	ThrottleEased  Code = "ThrottleEased"  // it did; the pod is given more again, step by step
	ThrottleUndone Code = "ThrottleUndone" // it did not, so the pod has back what it had
)

// Why nothing more is sold, and a batch pod should leave the node.
const (
	MemoryGone   Code = "MemoryGone"   // no memory is left for batch, though it was held and asked for page cache
	BatchStarved Code = "BatchStarved" // the pod has had hardly any of the CPU that it was sold for minutes, and wants it
)

// Unit is the unit of an operand.
type Unit string

// The units that operands carry.
const (
	UnitShares   Unit = "shares"
	UnitMilli    Unit = "mCPU"
	UnitTimes    Unit = "x/1000" // a factor in thousandths
	UnitPermille Unit = "/1000"
	UnitCPUs     Unit = "CPUs"
	UnitPods     Unit = "pods"
	UnitBytes    Unit = "B"
	UnitSeconds  Unit = "s"
	UnitPart     Unit = "%"
)

// Operand is one named number that a decision was computed from.
type Operand struct {
	Name  string
	Value int64
	Unit  Unit
}

// String returns the operand as an operator reads it: name=value and the unit. Many bytes are rounded.
func (o Operand) String() string {
	switch {
	case o.Unit == UnitTimes:
		return fmt.Sprintf("%s=%gx", o.Name, float64(o.Value)/1000)
	case o.Unit == UnitBytes && max(o.Value, -o.Value) >= 1<<30:
		return fmt.Sprintf("%s=%.2fGiB", o.Name, float64(o.Value)/(1<<30))
	case o.Unit == UnitBytes && max(o.Value, -o.Value) >= 1<<20:
		return fmt.Sprintf("%s=%.2fMiB", o.Name, float64(o.Value)/(1<<20))
	}
	return fmt.Sprintf("%s=%d%s", o.Name, o.Value, o.Unit)
}

// Reason is why a value is what it is: a code, the numbers it was computed from and, where a person wrote something that
// cannot be used, their words. The zero value means that there is no reason to give.
type Reason struct {
	Code     Code
	Operands []Operand
	Key      string // of the annotation or field in question
	Text     string // its value, as written, cut to a sane length
	Fix      string // what to write instead
}

// String returns the reason in one line, for transcripts and explanations.
func (r Reason) String() string { return string(r.Code) + r.details() }

// Details returns what [Reason.String] says beyond the code.
func (r Reason) Details() string { return strings.TrimLeft(r.details(), " :") }

func (r Reason) details() string {
	var b strings.Builder
	for _, o := range r.Operands {
		b.WriteByte(' ')
		b.WriteString(o.String())
	}
	if r.Key != "" {
		fmt.Fprintf(&b, " %s: %q", r.Key, r.Text)
	}
	if r.Fix != "" {
		b.WriteString(": ")
		b.WriteString(r.Fix)
	}
	return b.String()
}
