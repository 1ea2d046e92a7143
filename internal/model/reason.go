package model

import (
	"fmt"
	"strings"
)

// Code is the reason for a decision in one word. Each code appears in a golden case and in docs/reasons.md.
type Code string

// Reasons for the value of a cgroup file.
const (
	Weighted          Code = "Weighted"          // the pod's annotation requests this weight
	WeightedByPolicy  Code = "WeightedByPolicy"  // a rule of the policy gives the pod this weight
	WeightClamped     Code = "WeightClamped"     // the requested weight exceeds the namespace's maximum in the policy
	WeightCapped      Code = "WeightCapped"      // a higher weight would take CPU that other pods requested
	WeightPodLevel    Code = "WeightPodLevel"    // a higher weight would count as a request of spec.resources
	AgentFirst        Code = "AgentFirst"        // the agent's own pod needs CPU when the node is busiest
	CriticalPreserved Code = "CriticalPreserved" // a system-critical pod keeps its fraction of its QoS class
	SumOfPods         Code = "SumOfPods"         // a QoS class has the sum of the weights of its pods
	QuotaLifted       Code = "QuotaLifted"       // the pod requests to be limited by its weight only
	QuotaNeedless     Code = "QuotaNeedless"     // the container's exclusive CPUs limit it already
	BatchWeight       Code = "BatchWeight"       // weight for the batch CPU that the pod or container requests
	BatchIdle         Code = "BatchIdle"         // the batch pod runs only when no pod beside it wants to, by policy
	GroupIdentity     Code = "GroupIdentity"     // the kernel knows the pod as online or as batch, by policy
	OnlineBestEffort  Code = "OnlineBestEffort"  // an online BestEffort pod weighs as much as all batch pods together
	BatchQuota        Code = "BatchQuota"        // the CPU limit from the spec of a batch pod or container
	BurstAllowed      Code = "BurstAllowed"      // the pod or container may accumulate unused quota, up to its limit
	QuotaRaised       Code = "QuotaRaised"       // throttled at its limit after leaving CPU unused: more for a while
	NodeHot           Code = "NodeHot"           // no pod may burst: no room, none a moment ago, or none measured
	BatchMemory       Code = "BatchMemory"       // the memory limit of a batch pod or container, or its request
	MemoryProtected   Code = "MemoryProtected"   // memory that the online pod requests is protected from reclaim
	AncestorProtected Code = "AncestorProtected" // a parent group needs the protection that its pods use
	MemoryLimited     Code = "MemoryLimited"     // the batch pod's memory may not grow: little is left for batch
	MemoryReclaimed   Code = "MemoryReclaimed"   // page cache of the batch pod is reclaimed: little is left for batch
	KubeletValue      Code = "KubeletValue"      // restored: the value that the kubelet computes from the pod's spec
	RecordedValue     Code = "RecordedValue"     // restored: the newest value from another writer
	LastKnown         Code = "LastKnown"         // pods or measurements are missing: the last decided value stays
	IdleGroup         Code = "IdleGroup"         // deferred: the kernel refuses a weight while cpu.idle is set
	MemoryInUse       Code = "MemoryInUse"       // deferred: usage exceeds the limit, and processes would be killed
	RejectedByKernel  Code = "RejectedByKernel"  // deferred: the kernel refused this value, and nothing has changed
	ForeignWriter     Code = "ForeignWriter"     // deferred: another writer keeps changing this file
	BadAnnotation     Code = "BadAnnotation"     // the annotation's value is invalid; the pod keeps its defaults
	BadLabel          Code = "BadLabel"          // the label's value is invalid; the pod counts as an online service
	NotPrivileged     Code = "NotPrivileged"     // the policy does not allow this request to the pod's namespace
	BothSpellings     Code = "BothSpellings"     // one annotation or label in two spellings; Waterline's own counts
	NoPodCgroups      Code = "NoPodCgroups"      // the kubelet creates no cgroups for pods: nothing to weight
	KubeletUnknown    Code = "KubeletUnknown"    // the kubelet's settings cannot be read: its defaults count
	PodsOutside       Code = "PodsOutside"       // containers run outside of their pods' cgroups: nothing is sold
	ObserveOnly       Code = "ObserveOnly"       // deferred: mode Observe writes nothing
	ReadOnlyMount     Code = "ReadOnlyMount"     // deferred: the cgroup file system is mounted read-only
)

// Reasons for the CPUs of a group, and reasons why a pod does not have the CPUs that it requests.
const (
	CPUsExclusive    Code = "CPUsExclusive"    // exclusive CPUs of the pod
	CPUsShare        Code = "CPUsShare"        // home CPUs of the pod; others may run there too
	CPUsShared       Code = "CPUsShared"       // all CPUs that are not exclusive to a pod
	CPUsOfClass      Code = "CPUsOfClass"      // all CPUs except the exclusive ones of pods in other QoS classes
	CPUsOfPod        Code = "CPUsOfPod"        // all CPUs of the pod's containers
	CPUsNotWhole     Code = "CPUsNotWhole"     // no container has a CPU limit of a whole number of CPUs
	CPUsNotRequested Code = "CPUsNotRequested" // the CPU request is below the limit: other pods requested the rest
	CPUsTooMany      Code = "CPUsTooMany"      // more CPUs than this node has for pods
	CPUsTaken        Code = "CPUsTaken"        // too few CPUs are outside other pods' own sets
	CPUsPromised     Code = "CPUsPromised"     // the other pods' CPU requests would not fit into the remaining CPUs
	CPUsSplitCores   Code = "CPUsSplitCores"   // pcpu-only, but too few whole physical cores are free
	CPUsOfKubelet    Code = "CPUsOfKubelet"    // the kubelet's static policy assigns this pod's CPUs
	CPUsLost         Code = "CPUsLost"         // the pod's CPUs went offline, or the kubelet assigned them elsewhere
	CPUsUnknown      Code = "CPUsUnknown"      // the CPUs available on this node are not known
	CPUsUnsupported  Code = "CPUsUnsupported"  // this node has no cpuset controller
	CPUsMoveLater    Code = "CPUsMoveLater"    // too many running pods changed CPUs within a minute
	CPUsHintUnused   Code = "CPUsHintUnused"   // the CPUs of the hint could not be given, so others were chosen
	CPUsPinned       Code = "CPUsPinned"       // the container keeps CPUs that the kubelet gave it under another policy
	CPUsConfined     Code = "CPUsConfined"     // a parent cgroup of another owner allows other CPUs only
	MemoryTooLarge   Code = "MemoryTooLarge"   // the memory limit exceeds the NUMA nodes of the CPUs
)

// Reasons why a policy governs a node or does not, and reasons from the policy for selling nothing.
const (
	PolicyGoverns      Code = "PolicyGoverns"      // it ranks highest of the policies that select the node
	PolicyDefaults     Code = "PolicyDefaults"     // no policy selects the node, so the defaults apply
	PolicyNotSelected  Code = "PolicyNotSelected"  // its selector does not match the node
	PolicyNotRolledOut Code = "PolicyNotRolledOut" // it selects the node, but its rollout has not reached the node
	PolicyOutranked    Code = "PolicyOutranked"    // it selects the node, but another policy ranks higher
	NodeOptedOut       Code = "NodeOptedOut"       // the node has the opt-out label, or is paused
	WindowDraining     Code = "WindowDraining"     // the window ends soon: nothing new is sold
	WindowClosed       Code = "WindowClosed"       // outside all windows: nothing is sold
)

// Reasons for the size of the offer.
const (
	SoldPredicted  Code = "SoldPredicted"  // room under the waterline next to the predicted peak
	SoldLearning   Code = "SoldLearning"   // less than a day was measured: room next to a first estimate of the peak
	SoldRealtime   Code = "SoldRealtime"   // room under the waterline next to the current usage
	SoldStatic     Code = "SoldStatic"     // the policy's fraction of the capacity, available or not
	NotSold        Code = "NotSold"        // the policy sells nothing
	OfferWithdrawn Code = "OfferWithdrawn" // the manager has withdrawn the node's offer
	OfferUnstable  Code = "OfferUnstable"  // there is more room, but the offer fell often: it settles for longer
	OfferGrows     Code = "OfferGrows"     // there is more room; the offer settles first, then grows in steps
	SlackNone      Code = "SlackNone"      // there is no room under the waterline
	SlackStale     Code = "SlackStale"     // the measurements are old; the offer shrinks with their age
	SlackUnknown   Code = "SlackUnknown"   // nothing was measured yet
)

// Reasons for the CPU limit of batch, and for the settings that enforce it.
const (
	BatchAllowed    Code = "BatchAllowed"    // CPU that online pods leave under the waterline
	BatchGrows      Code = "BatchGrows"      // there is more room; the limit grows in steps
	BatchSettling   Code = "BatchSettling"   // more room, but the limit fell a moment ago
	BatchMinimum    Code = "BatchMinimum"    // the minimum for batch in the policy, though online pods leave less
	OnlineHarmed    Code = "OnlineHarmed"    // an online pod waits longer than without batch, so batch gets less
	SystemHarmed    Code = "SystemHarmed"    // a service of the node itself waits because of batch, which gets less
	SystemStarved   Code = "SystemStarved"   // a service of the node itself waits, and less batch does not help
	ServiceHarmed   Code = "ServiceHarmed"   // a service's own figure is above its maximum, so batch gets less
	ServiceUnknown  Code = "ServiceUnknown"  // a service's own figure cannot be fetched; other signals count
	ServiceAtFault  Code = "ServiceAtFault"  // it was so though batch was pushed back: it counts where it lasts
	BatchFree       Code = "BatchFree"       // no online pod is harmed, so batch may use the whole machine
	BatchProbes     Code = "BatchProbes"     // no online pod is harmed any more, so batch gets more again
	HarmUnknown     Code = "HarmUnknown"     // an online pod has no signal of harm, so batch gets what is left
	BatchSuppressed Code = "BatchSuppressed" // the pod's part of the limit of all batch pods
	BatchCPUs       Code = "BatchCPUs"       // number of CPUs that hold the limit of batch
)

// Features of a policy that the node's kernel does not support.
const (
	NoBurst            Code = "NoBurst"            // online pods cannot accumulate unused quota
	NoIdle             Code = "NoIdle"             // batch pods cannot be idle groups; they keep their weights
	NoGroupIdentity    Code = "NoGroupIdentity"    // the kernel has no usable group identity
	NoCPUSets          Code = "NoCPUSets"          // batch cannot be limited to some CPUs: quotas limit it
	NoMemoryProtection Code = "NoMemoryProtection" // memory of online pods cannot be protected, or the kubelet does it
	NoReclaim          Code = "NoReclaim"          // memory of batch pods cannot be reclaimed in advance
	NoPressure         Code = "NoPressure"         // neither tasks nor pressure are seen: only usage limits batch
)

// Findings about interference, and reasons for throttling batch.
const (
	SuspectNamed   Code = "SuspectNamed"   // usage of a batch pod correlates with the waiting
	SuspectOnline  Code = "SuspectOnline"  // usage of a pod that is not batch does; such a pod is not throttled
	SuspectUnknown Code = "SuspectUnknown" // no pod stands out, or not for long enough
	ThrottleTried  Code = "ThrottleTried"  // on trial: does the victim wait less?
	ThrottleKept   Code = "ThrottleKept"   // the victim waits less; the throttle stays
	ThrottleEased  Code = "ThrottleEased"  // the victim waited less; the limit rises again step by step
	ThrottleUndone Code = "ThrottleUndone" // the victim did not wait less; the throttle is removed
)

// Reasons for an eviction, during which nothing more is sold.
const (
	MemoryExhausted Code = "MemoryExhausted" // no memory is left for batch, after limits and reclaim
	MemoryStalled   Code = "MemoryStalled"   // the pod's tasks have only waited for memory for minutes, at its own limit
	BatchStarved    Code = "BatchStarved"    // the pod wants CPU, and had hardly any of its request for minutes
)

// Reasons why the guard beside a NodeManager tells a container to leave, and what it waits for.
const (
	ExecutorDecommissioned Code = "ExecutorDecommissioned" // the deadline runs: the executor moves its data and leaves
	DeadlineMissed         Code = "DeadlineMissed"         // containers exceed the allowance after the deadline
	MemoryAtHardMark       Code = "MemoryAtHardMark"       // the kernel would kill next: memory is at its limit
	TermIgnored            Code = "TermIgnored"            // the container was told to end, and stays
	DeadlineRuns           Code = "DeadlineRuns"           // containers have until the deadline to leave
	RMKillsFirst           Code = "RMKillsFirst"           // after the deadline, the ResourceManager has the first turn
	ShedSettles            Code = "ShedSettles"            // the last signal must have its effect, and be measured
	KillBudgetSpent        Code = "KillBudgetSpent"        // enough containers were ended within the last minute
	ReadingsOld            Code = "ReadingsOld"            // old readings end no container
	NoneToShed             Code = "NoneToShed"             // too much is in use, and no container may be ended now
)

// Unit is the unit of an operand.
type Unit string

// The units that operands carry.
const (
	UnitShares     Unit = "shares"
	UnitMilli      Unit = "mCPU"
	UnitTimes      Unit = "x/1000" // a factor in thousandths
	UnitPermille   Unit = "/1000"
	UnitCPUs       Unit = "CPUs"
	UnitPods       Unit = "pods"
	UnitBytes      Unit = "B"
	UnitSeconds    Unit = "s"
	UnitPart       Unit = "%"
	UnitVCores     Unit = "vcores"
	UnitContainers Unit = "containers"
	UnitFigure     Unit = "/1000000" // a figure of a service, in millionths of its own unit
)

// Operand is one named number that a decision was computed from.
type Operand struct {
	Name  string
	Value int64
	Unit  Unit
}

// String returns the operand for operators: name=value and the unit. Large numbers of bytes are rounded.
func (o Operand) String() string {
	switch {
	case o.Unit == UnitTimes:
		return fmt.Sprintf("%s=%gx", o.Name, float64(o.Value)/1000)
	case o.Unit == UnitFigure:
		return fmt.Sprintf("%s=%g", o.Name, float64(o.Value)/1e6)
	case o.Unit == UnitBytes && max(o.Value, -o.Value) >= 1<<30:
		return fmt.Sprintf("%s=%.2fGiB", o.Name, float64(o.Value)/(1<<30))
	case o.Unit == UnitBytes && max(o.Value, -o.Value) >= 1<<20:
		return fmt.Sprintf("%s=%.2fMiB", o.Name, float64(o.Value)/(1<<20))
	}
	return fmt.Sprintf("%s=%d%s", o.Name, o.Value, o.Unit)
}

// Reason explains a decision: a code and the numbers that it was computed from. If a user wrote something invalid, it
// also quotes that text. The zero value means no reason.
type Reason struct {
	Code     Code
	Operands []Operand
	Key      string // annotation or field in question
	Text     string // its value as written, shortened if too long
	Fix      string // how to correct it
}

// Reasons makes the reasons of a round that have one operand. Pods of one workload have the same requests and limits,
// so equal reasons are one, which nothing changes. The zero value is ready.
type Reasons struct {
	last [8]*Reason
	next int
}

// Of returns the reason with a code and an operand.
func (r *Reasons) Of(code Code, operand Operand) *Reason {
	for _, why := range r.last {
		if why != nil && why.Operands[0].Value == operand.Value && why.Code == code && why.Operands[0] == operand {
			return why
		}
	}
	why := &Reason{Code: code, Operands: []Operand{operand}}
	r.last[r.next%len(r.last)] = why
	r.next++
	return why
}

// String returns the reason in one line, for transcripts and explanations.
func (r Reason) String() string { return string(r.Code) + r.details() }

// Details returns [Reason.String] without the code.
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
