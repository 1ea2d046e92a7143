package model

import "slices"

// Mode is how far a policy is carried out.
type Mode string

// The modes. The zero value counts as ModeObserve: nothing is written.
const (
	ModeObserve  Mode = "Observe"  // decide and report, write nothing
	ModeEnforce  Mode = "Enforce"  // carry out the decisions
	ModeDisabled Mode = "Disabled" // restore everything, then write nothing
)

// Scope is the set of pods against which a weight counts.
type Scope string

// The scopes.
const (
	ScopeNode  Scope = "Node"  // against every pod of the node: the pod's QoS class is raised too
	ScopeClass Scope = "Class" // against pods of the same QoS class only
)

// QuotaMode is the handling of a weighted pod's CFS quota.
type QuotaMode string

// The quota modes. The zero value leaves the choice to the next in line: annotation, then policy, then QuotaKubelet.
const (
	QuotaKubelet   QuotaMode = "kubelet"   // as the kubelet computes it from the limits
	QuotaUnlimited QuotaMode = "unlimited" // none: the weight alone decides
)

// SuppressMethod is how it is found how much CPU batch may use.
type SuppressMethod string

// The methods of suppression. The zero value belongs to a policy without cpu.
const (
	SuppressOnHarm       SuppressMethod = "OnHarm"     // all of it while no online pod is harmed
	SuppressByArithmetic SuppressMethod = "Arithmetic" // what online pods leave under the waterline
	SuppressByNone       SuppressMethod = "None"       // all of it
)

// BatchClass is how the kernel puts batch pods without a weight of their own behind other pods.
type BatchClass string

// The classes. The zero value counts as BatchByWeight.
const (
	BatchByWeight   BatchClass = "Weight"        // by what they requested
	BatchByIdle     BatchClass = "Idle"          // they run only when no sibling wants to
	BatchByIdentity BatchClass = "GroupIdentity" // on kernels with group identities, they are marked as batch
)

// Policy is what an operator allows on a node, with every default filled in.
type Policy struct {
	Mode        Mode
	CPU         SellPolicy
	Memory      SellPolicy
	Suppress    SuppressPolicy
	Protect     ProtectPolicy
	UseIsolated bool `json:",omitempty"` // isolated CPUs count like others, except for batch
	Weight      WeightPolicy
	Pods        []PodRule
	Privileges  []PrivilegeRule // what pods may request; all entries that match a namespace count
	Services    []ServiceRule   `json:",omitempty"` // figures of services; the first that selects a pod counts
}

// SelectsNamespaces reports whether the policy selects anything by labels of namespaces, which must be known then.
func (p *Policy) SelectsNamespaces() bool {
	return len(p.Weight.Namespaces) > 0 ||
		slices.ContainsFunc(p.Pods, func(rule PodRule) bool { return len(rule.Namespaces) > 0 }) ||
		slices.ContainsFunc(p.Services, func(rule ServiceRule) bool { return len(rule.Namespaces) > 0 }) ||
		slices.ContainsFunc(p.Privileges, func(rule PrivilegeRule) bool { return len(rule.Namespaces) > 0 })
}

// SuppressPolicy is how batch is limited.
type SuppressPolicy struct {
	By       SuppressMethod
	MinBatch int64 // part of the capacity, in thousandths, that batch keeps whatever online pods need
}

// On reports whether batch is limited.
func (p SuppressPolicy) On() bool { return p.By != "" && p.By != SuppressByNone }

// ProtectPolicy is the protection of online pods besides the suppression of batch.
type ProtectPolicy struct {
	Burst        bool // online pods exceed their CFS quota for moments
	Memory       bool // the kernel reclaims batch memory before the memory that they request
	Interference bool // find the pod that makes an online pod wait, and throttle it if it is batch
	// batch pods that may be evicted from the node in an hour; 0: no eviction is requested
	EvictPerHour int64
}

// WeightPolicy limits and extends the weights of annotations.
type WeightPolicy struct {
	Scope Scope
	Quota QuotaMode
	// The highest weight that a pod may request, in shares; a pod that requests more gets this. 0: 1024 for each CPU of
	// its CPU limit or request, whichever is higher.
	Max                int64
	Namespaces         []NamespaceMax // the first whose selector matches the namespace replaces Max
	OverrideGuaranteed bool           // weights may take CPU that other pods request
	Batch              BatchClass     // of batch pods without a weight of their own
}

// NamespaceMax is the highest weight for the pods of some namespaces, in shares.
type NamespaceMax struct {
	Selector Selector
	Max      int64
}

// Privilege is something that a pod may request in an annotation or label only where the policy allows it.
type Privilege string

// The privileges. A pod that requests another class or nothing of these needs none.
const (
	PrivilegeUnlimitedQuota Privilege = "UnlimitedQuota" // to have no CFS quota
	PrivilegeShareCPUs      Privilege = "ShareCPUs"      // home CPUs
	PrivilegeExclusiveCPUs  Privilege = "ExclusiveCPUs"  // CPUs of its own
	PrivilegeLSE            Privilege = "LSE"            // the class, with its CPUs and protected memory
	PrivilegeLSR            Privilege = "LSR"
	PrivilegeSystem         Privilege = "SYSTEM"
	PrivilegeNeverEvict     Privilege = "NeverEvict" // a batch pod that is not evicted
	PrivilegeStaticPod      Privilege = "StaticPod"  // a mirror pod in the API is taken for a static pod of its node
)

// Privileges lists all privileges.
func Privileges() []Privilege {
	return []Privilege{
		PrivilegeUnlimitedQuota, PrivilegeShareCPUs, PrivilegeExclusiveCPUs, PrivilegeLSE, PrivilegeLSR, PrivilegeSystem,
		PrivilegeNeverEvict, PrivilegeStaticPod,
	}
}

// PrivilegeRule grants privileges to the pods of some namespaces.
type PrivilegeRule struct {
	Namespaces Selector
	Allow      []Privilege
}

// PodRule gives the pods that it selects the effect of annotations. An annotation on the pod takes precedence. Of the
// rules that select a pod, the first with a value counts, for each value.
type PodRule struct {
	Selector   Selector
	Namespaces Selector     // of the pods' namespaces
	Shares     int64        // 0: no value
	CPUs       CPUMode      // "": no value
	Placement  CPUPlacement // how CPUs are chosen; counts together with CPUs
}

// Selects reports whether the rule selects a pod.
func (r *PodRule) Selects(p *Pod) bool {
	return r.Selector.Matches(p.Labels) && r.Namespaces.Matches(p.NamespaceLabels)
}

// DefaultPolicy is the policy of a node that no policy selects: everything is decided and nothing written. Pods may
// request weights up to their CPU limit or request, and no privilege; nothing is sold, and no pod is evicted.
func DefaultPolicy() Policy {
	return Policy{
		Mode:   ModeObserve,
		CPU:    SellPolicy{Waterline: 650},
		Memory: SellPolicy{Waterline: 800},
		Weight: WeightPolicy{Scope: ScopeNode, Quota: QuotaKubelet},
	}
}

// Selector selects objects by their labels: all requirements must hold, and an empty selector selects everything.
type Selector []Requirement

// Requirement is one condition on a label.
type Requirement struct {
	Key    string
	Op     SelectorOp
	Values []string
}

// SelectorOp is the operator of a requirement.
type SelectorOp string

// The operators, named as in the Kubernetes API.
const (
	In           SelectorOp = "In"
	NotIn        SelectorOp = "NotIn"
	Exists       SelectorOp = "Exists"
	DoesNotExist SelectorOp = "DoesNotExist"
)

// Matches reports whether the selector selects an object with these labels. As in the Kubernetes API, NotIn also holds
// for an object without the label.
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
