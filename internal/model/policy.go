package model

import "slices"

// Mode says how far a policy goes.
type Mode string

// The modes. The zero value is ModeObserve: a policy that does not say acts on nothing.
const (
	ModeObserve  Mode = "Observe"  // decide and report, write nothing
	ModeEnforce  Mode = "Enforce"  // carry out what is decided
	ModeDisabled Mode = "Disabled" // give back everything, then do nothing
)

// Scope says against whom a weight counts.
type Scope string

// The scopes.
const (
	ScopeNode  Scope = "Node"  // against every pod of the node: the pod's QoS class is raised too
	ScopeClass Scope = "Class" // against pods of the same QoS class only
)

// QuotaMode says what becomes of a weighted pod's CFS quota.
type QuotaMode string

// The quota modes. The zero value leaves the choice to the next in line: annotation, then policy, then QuotaKubelet.
const (
	QuotaKubelet   QuotaMode = "kubelet"   // as the kubelet computes it from the limits
	QuotaUnlimited QuotaMode = "unlimited" // none: the weight alone decides
)

// SuppressMethod is what keeps batch to what online pods leave.
type SuppressMethod string

// The methods of suppression. The zero value is that of a policy that is not about CPU.
const (
	SuppressByNone   SuppressMethod = "None"
	SuppressByCpuset SuppressMethod = "CPUSet" // batch runs on fewer CPUs
	SuppressByQuota  SuppressMethod = "Quota"  // each batch pod has a CFS quota
	SuppressByBoth   SuppressMethod = "Both"   // batch runs on as few CPUs as hold it, and has the quota
)

// Policy is what an operator allows Waterline to do on a node, with every default filled in.
type Policy struct {
	Mode        Mode
	CPU         SellPolicy
	Memory      SellPolicy
	Suppress    SuppressPolicy
	Protect     ProtectPolicy
	Koordinator bool // sell under Koordinator's resource names instead of ours
	Weight      WeightPolicy
	Pods        []PodRule
}

// SelectsNamespaces reports whether the policy selects anything by the labels of namespaces, which must be known then.
func (p *Policy) SelectsNamespaces() bool {
	return len(p.Weight.Namespaces) > 0 ||
		slices.ContainsFunc(p.Pods, func(rule PodRule) bool { return len(rule.Namespaces) > 0 })
}

// SuppressPolicy is how batch is kept to what online pods leave of the CPU.
type SuppressPolicy struct {
	By       SuppressMethod
	MinBatch int64 // of the capacity, in thousandths, that batch keeps whatever online pods need
}

// On reports whether batch is kept to anything.
func (p SuppressPolicy) On() bool { return p.By != "" && p.By != SuppressByNone }

// ProtectPolicy is what is done for online pods besides suppressing batch.
type ProtectPolicy struct {
	Burst        bool // let them exceed their CFS quota for moments
	Memory       bool // have the kernel take other memory before that which they request
	Interference bool // find out which neighbour an online pod waits for, and throttle it if that is batch
	// batch pods that may be evicted from the node in an hour, at most; 0: none is, and nobody is asked to
	EvictPerHour int64
	// freeze the one that is to leave for want of memory, for moments; only together with Memory and EvictPerHour
	Freeze bool
}

// WeightPolicy bounds and extends what annotations ask for.
type WeightPolicy struct {
	Scope              Scope
	Quota              QuotaMode
	Max                int64          // in shares; a pod that asks for more gets this
	Namespaces         []NamespaceMax // the first whose selector matches the namespace replaces Max
	OverrideGuaranteed bool           // let weights take CPU that Guaranteed pods were promised
	PromoteBestEffort  bool           // raise the BestEffort class too, so that its pods' weights count on the node
	SchedIdle          bool           // batch pods without a weight of their own run only when no pod beside them wants to
	// such pods are told to the kernel as batch, and online pods as online, where it can tell them apart
	Identity bool
}

// NamespaceMax is the highest weight for the pods of some namespaces, in shares.
type NamespaceMax struct {
	Selector Selector
	Max      int64
}

// PodRule gives the pods it selects what annotations would give them. An annotation on the pod beats it. Of the rules
// that select a pod the first that says something about a thing counts.
type PodRule struct {
	Selector   Selector
	Namespaces Selector     // of the pods' namespaces
	Shares     int64        // 0: says nothing
	CPUs       CPUMode      // "": says nothing
	Placement  CPUPlacement // how CPUs are chosen; counts together with CPUs
}

// Selects reports whether the rule selects a pod.
func (r *PodRule) Selects(p *Pod) bool {
	return r.Selector.Matches(p.Labels) && r.Namespaces.Matches(p.NamespaceLabels)
}

// DefaultPolicy is what holds where no policy was written: weights as annotated, within the kernel's range, nothing
// sold and nobody evicted.
func DefaultPolicy() Policy {
	return Policy{
		Mode:   ModeObserve,
		CPU:    SellPolicy{Waterline: 650},
		Memory: SellPolicy{Waterline: 800},
		Weight: WeightPolicy{Scope: ScopeNode, Quota: QuotaKubelet, Max: MaxShares},
	}
}

// Selector chooses objects by their labels: all requirements must hold, and none at all chooses everything.
type Selector []Requirement

// Requirement is one condition on a label.
type Requirement struct {
	Key    string
	Op     SelectorOp
	Values []string
}

// SelectorOp is what a requirement demands of a label.
type SelectorOp string

// The operators, named as in the Kubernetes API.
const (
	In           SelectorOp = "In"
	NotIn        SelectorOp = "NotIn"
	Exists       SelectorOp = "Exists"
	DoesNotExist SelectorOp = "DoesNotExist"
)

// Matches reports whether an object with these labels is chosen. As in the Kubernetes API, NotIn also holds for an
// object without the label.
func (s Selector) Matches(labels map[string]string) bool {
	for _, r := range s {
		value, found := labels[r.Key]
		listed := false
		for _, v := range r.Values {
			listed = listed || found && v == value
		}
		var holds bool
		switch r.Op {
		case In:
			holds = listed
		case NotIn:
			holds = !listed
		case Exists:
			holds = found
		case DoesNotExist:
			holds = !found
		}
		if !holds {
			return false
		}
	}
	return true
}

// Or returns q, or other where q leaves the choice open.
func (q QuotaMode) Or(other QuotaMode) QuotaMode {
	if q == "" {
		return other
	}
	return q
}
