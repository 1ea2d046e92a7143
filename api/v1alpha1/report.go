package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NodeReport is what the agent of one node says about it. It has the node's name and is owned by the Node. The agent
// writes it when something in it has changed; it is no heartbeat.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=waterline
// +kubebuilder:printcolumn:name="Policy",type=string,JSONPath=`.status.policy`
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.status.mode`
// +kubebuilder:printcolumn:name="Selling",type=string,JSONPath=`.status.selling`
// +kubebuilder:printcolumn:name="Batch CPU",type=string,JSONPath=`.status.cpu.offer.batch`,description="Offered as batch"
// +kubebuilder:printcolumn:name="Batch memory",type=string,JSONPath=`.status.memory.offer.batch`,description="Offered as batch"
// +kubebuilder:printcolumn:name="Withdrawn",type=string,JSONPath=`.status.conditions[?(@.type=="Withdrawn")].status`,priority=1
// +kubebuilder:printcolumn:name="Changed",type=date,JSONPath=`.status.changed`
type NodeReport struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Status NodeReportStatus `json:"status,omitempty"`
}

// NodeReportList is a list of reports.
//
// +kubebuilder:object:root=true
type NodeReportList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []NodeReport `json:"items"`
}

// NodeReportStatus is what an agent does and has.
type NodeReportStatus struct {
	// Policy is the name of the policy that governs the node; empty while none does, and the agent goes by its defaults.
	Policy string `json:"policy,omitempty"`
	// PolicyGeneration is the generation of that policy which the agent goes by.
	PolicyGeneration int64 `json:"policyGeneration,omitempty"`
	// Mode is how far the agent goes: Observe, Enforce or Off.
	// +kubebuilder:validation:Enum=Observe;Enforce;Disabled
	Mode string `json:"mode,omitempty"`
	// Selling is what the policy's windows say now: Open, Draining (nothing new is sold) or Closed (nothing is).
	// +kubebuilder:validation:Enum=Open;Draining;Closed
	Selling string `json:"selling,omitempty"`
	// Unsupported is what the policy asks for and the node's kernel cannot do, each in one word of docs/reasons.md.
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	Unsupported []string `json:"unsupported,omitempty"`
	// Hot is why nothing is sold although there may be an offer, in one word of docs/reasons.md; empty while the node is
	// not hot.
	// +kubebuilder:validation:MaxLength=64
	Hot string `json:"hot,omitempty"`
	// Eviction is which batch pod should leave the node. The manager decides whether it is evicted.
	Eviction *EvictionRequest `json:"eviction,omitempty"`
	// CPU is where the node's CPU goes, in CPUs.
	CPU *ResourceReport `json:"cpu,omitempty"`
	// Memory is where the node's memory goes, in bytes.
	Memory *ResourceReport `json:"memory,omitempty"`
	// Conditions are Withdrawn and Evicted, which are the manager's.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Changed is when something in the status last changed.
	Changed *metav1.Time `json:"changed,omitempty"`
}

// EvictionRequest asks for one batch pod to leave its node.
type EvictionRequest struct {
	// Namespace of the pod.
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// Name of the pod.
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// UID of the pod.
	// +kubebuilder:validation:MaxLength=64
	UID string `json:"uid"`
	// Reason is why it should leave, in one word of docs/reasons.md.
	// +kubebuilder:validation:Enum=MemoryExhausted;BatchStarved
	Reason string `json:"reason"`
	// Message has the numbers from which that was decided.
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
	// Renewed changes every 20 seconds while the request stands. One that is not renewed for a minute does not count any
	// more.
	Renewed metav1.MicroTime `json:"renewed"`
}

// ResourceReport is where one resource of a node goes.
type ResourceReport struct {
	// Offer is what is sold in all of each tier, bound requests included.
	Offer TierQuantities `json:"offer"`
	// Allowance is what batch, of all tiers together, may use now.
	Allowance resource.Quantity `json:"allowance"`
	// Capacity is what the machine has.
	Capacity resource.Quantity `json:"capacity"`
	// Ceiling is up to which the node is filled.
	Ceiling resource.Quantity `json:"ceiling"`
	// System is what the system uses or has reserved, whichever is more.
	System resource.Quantity `json:"system"`
	// Online is what online pods use now.
	Online resource.Quantity `json:"online"`
	// Peaks are the most that online pods are expected to use.
	Peaks PeakQuantities `json:"peaks"`
	// Bound is what pods that are bound to the node requested of each tier.
	Bound TierQuantities `json:"bound"`
	// Reason is why the offer is what it is, in one word of docs/reasons.md.
	Reason string `json:"reason,omitempty"`
}

// TierQuantities is an amount for each tier.
type TierQuantities struct {
	// Mid is expected to be there for a day.
	Mid resource.Quantity `json:"mid"`
	// Batch is expected to be there for an hour.
	Batch resource.Quantity `json:"batch"`
}

// PeakQuantities are predicted peaks.
type PeakQuantities struct {
	// Hour is the peak within an hour.
	Hour resource.Quantity `json:"hour"`
	// Day is the peak within a day.
	Day resource.Quantity `json:"day"`
}

// ConditionWithdrawn on a [NodeReport] is True while the manager keeps the node from selling anything. Only the manager
// sets and lifts it, and the agent publishes nothing meanwhile.
const ConditionWithdrawn = "Withdrawn"

// ConditionEvicted on a [NodeReport] is True when the pod that the node last asked for was evicted, and False with the
// reason when it was not. Only the manager sets it.
const ConditionEvicted = "Evicted"
