package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NodeReport is the report of one node's agent. It has the node's name and is owned by the Node. The agent writes it
// when something in it has changed; it is no heartbeat.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=waterline
// +kubebuilder:printcolumn:name="Policy",type=string,JSONPath=`.status.policy`
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.status.mode`
// +kubebuilder:printcolumn:name="Selling",type=string,JSONPath=`.status.selling`
// +kubebuilder:printcolumn:name="Batch CPU",type=string,JSONPath=`.status.cpu.offer.batch`,description="Offered in the tier batch"
// +kubebuilder:printcolumn:name="Batch memory",type=string,JSONPath=`.status.memory.offer.batch`,description="Offered in the tier batch"
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

// NodeReportStatus is the state of a node, as its agent sees it. Reasons are single words, which docs/reasons.md
// explains.
type NodeReportStatus struct {
	// Policy is the name of the policy that governs the node. It is empty while none does; the agent then observes with
	// the defaults.
	Policy string `json:"policy,omitempty"`
	// PolicyGeneration is the generation of that policy which the agent follows.
	PolicyGeneration int64 `json:"policyGeneration,omitempty"`
	// Mode is the mode in which the agent works: Observe, Enforce or Disabled.
	Mode PolicyMode `json:"mode,omitempty"`
	// Selling is the present state of the policy's windows: Open, Draining (nothing new is sold) or Closed (nothing is
	// sold).
	Selling SellState `json:"selling,omitempty"`
	// Unsupported lists the features of the policy that the node's kernel or kubelet does not allow, as reasons such as
	// NoMemoryProtection. ServiceUnknown means that a figure of protect.services could not be fetched within the last
	// minute; waterline explain node says which and why.
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	Unsupported []string `json:"unsupported,omitempty"`
	// Faults are what is wrong with how the node was set up, each a reason with its values and what to do: PodsOutside,
	// KubeletUnknown or NoPodCgroups; or RejectedByKernel, with a cgroup file whose writes the kernel refuses, the value
	// and the error. The reasons are in unsupported too.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=4
	// +kubebuilder:validation:items:MaxLength=1024
	Faults []string `json:"faults,omitempty"`
	// HarmSignal is how the node knows whether online pods lack CPU while batch runs, under suppression OnHarm:
	// RunQueueDelay, by their tasks' waits for a CPU every 100 ms, Pressure, by their CPU pressure each second, or
	// ServiceFigure, by their own figures; the slowest of all pods counts. It is empty while this is not known: batch
	// then gets what online pods leave under the waterline.
	// +kubebuilder:validation:MaxLength=64
	HarmSignal string `json:"harmSignal,omitempty"`
	// Starved are the node's own services that lack CPU although batch made room, or without batch, each with because of
	// whom: an online pod, or processes outside of pods. The services are kubelet, container runtime, system services (of
	// system.slice) and kernel threads. Nothing of Waterline's helps then. A service stays for a minute after it waited.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=4
	// +kubebuilder:validation:items:MaxLength=1024
	Starved []string `json:"starved,omitempty"`
	// Hot is the reason why nothing is sold although there may be an offer, such as MemoryExhausted. It is empty while the
	// node is not hot.
	// +kubebuilder:validation:MaxLength=64
	Hot string `json:"hot,omitempty"`
	// Eviction requests that one batch pod leaves the node. The manager decides whether the pod is evicted.
	Eviction *EvictionRequest `json:"eviction,omitempty"`
	// Unrestored is the number of cgroup files that the agent wrote in mode Enforce and has still to restore, in another
	// mode.
	Unrestored int64 `json:"unrestored,omitempty"`
	// CPU is the account of the node's CPU, in CPUs.
	CPU *ResourceReport `json:"cpu,omitempty"`
	// Memory is the account of the node's memory, in bytes.
	Memory *ResourceReport `json:"memory,omitempty"`
	// Pressure is how much tasks of the node waited for resources. It is absent where the kernel does not report it (PSI).
	Pressure *PressureReport `json:"pressure,omitempty"`
	// ThrottledCPU is the CPU that batch pods requested and could not use, because online pods needed it: the mean of the
	// minute before this report. It is absent while it is not known.
	ThrottledCPU *resource.Quantity `json:"throttledCPU,omitempty"`
	// CPUSets is the node's room for pods that request their own CPUs, by the annotation waterline.io/cpu-manager. It is
	// absent where no pod can get any: no policy in mode Enforce allows it, or the node's CPUs are not known.
	CPUSets *CPUSetReport `json:"cpuSets,omitempty"`
	// Conditions are Withdrawn and Evicted. The manager writes them.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Changed is when the agent last wrote this status: when something changed, or 16 to 24 minutes after the last time.
	Changed *metav1.Time `json:"changed,omitempty"`
}

// EvictionRequest requests that one batch pod leaves its node.
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
	// Reason is MemoryExhausted (no memory is left for batch), MemoryStalled (the pod's tasks only wait for memory, at
	// its own limit) or BatchStarved (the pod has had hardly any of its CPU).
	// +kubebuilder:validation:Enum=MemoryExhausted;MemoryStalled;BatchStarved
	Reason string `json:"reason"`
	// Message has the numbers on which the request rests.
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
	// Renewed changes every 20 seconds while the request stands. A request that was not renewed for a minute does not
	// count.
	Renewed metav1.MicroTime `json:"renewed"`
}

// CPUSetReport is the room of a node for pods that request their own CPUs. All CPUs are in lists of the kernel's
// numbers, such as 0-3,8.
type CPUSetReport struct {
	// MaxExclusive is how many of the free CPUs can become exclusive. It can be lower than their number, because one CPU
	// of the node always stays shared.
	// +kubebuilder:validation:Minimum=0
	MaxExclusive int32 `json:"maxExclusive"`
	// NUMANodes are the NUMA nodes that have CPUs, ordered by ID.
	// +listType=map
	// +listMapKey=id
	// +kubebuilder:validation:MaxItems=1024
	NUMANodes []NUMANodeCPUs `json:"numaNodes,omitempty"`
}

// NUMANodeCPUs are the CPUs of one NUMA node.
type NUMANodeCPUs struct {
	// ID is the kernel's number of the NUMA node.
	// +kubebuilder:validation:Minimum=0
	ID int32 `json:"id"`
	// Free is the list of the CPUs that a pod can get as its own: neither reserved nor another pod's own. It is empty if
	// there are none.
	// +kubebuilder:validation:MaxLength=8192
	Free string `json:"free,omitempty"`
	// Cores are the physical cores, in groups of cores with the same number of threads. A group has one list for each
	// thread, separated by a slash: 0-15/64-79 are 16 cores, and the first core has CPUs 0 and 64, the second CPUs 1 and
	// 65. In a group of cores with one thread, 32-39, each CPU is a core.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MaxLength=8192
	Cores []string `json:"cores"`
}

// ResourceReport is the account of one resource of a node.
type ResourceReport struct {
	// Offer is the amount sold in each tier, requests of bound pods included.
	Offer TierQuantities `json:"offer"`
	// Allowance is the amount that batch, of all tiers together, may use now.
	Allowance resource.Quantity `json:"allowance"`
	// Capacity is the capacity of the machine.
	Capacity resource.Quantity `json:"capacity"`
	// Ceiling is the amount up to which the node is filled: the capacity times the waterline.
	Ceiling resource.Quantity `json:"ceiling"`
	// System is the amount that the system uses or has reserved, whichever is more, and the amount that daemons in pods
	// (class SYSTEM) use.
	System resource.Quantity `json:"system"`
	// Online is the amount that online pods use now.
	Online resource.Quantity `json:"online"`
	// Batch is the amount that batch pods use now. Agents older than this field leave it out.
	Batch *resource.Quantity `json:"batch,omitempty"`
	// Peaks are the predicted peaks of online pods.
	Peaks PeakQuantities `json:"peaks"`
	// OtherDays is what online pods used at most on other days, from this time of the day on. It is absent until a day was
	// measured.
	OtherDays *AheadQuantities `json:"otherDays,omitempty"`
	// Bound is the amount that pods bound to the node request in each tier.
	Bound TierQuantities `json:"bound"`
	// Reason is the reason for the offer, such as SoldPredicted.
	Reason string `json:"reason,omitempty"`
}

// PressureReport is the part of the last minute in which some tasks of the node waited for a resource, in thousandths.
type PressureReport struct {
	// CPU is the part in which some tasks waited for a CPU.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	CPU int32 `json:"cpu"`
	// Memory is the part in which some tasks waited for memory.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Memory int32 `json:"memory"`
	// IO is the part in which some tasks waited for input or output.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	IO int32 `json:"io"`
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
	// Hour is the highest use expected within an hour.
	Hour resource.Quantity `json:"hour"`
	// Day is the highest use expected within a day.
	Day resource.Quantity `json:"day"`
	// Learning is true while less than a day was measured: Hour is then the use of the last hour with a larger margin, or
	// follows from the requests if that is less.
	Learning bool `json:"learning,omitempty"`
}

// AheadQuantities are the highest use in times that begin now. They have no margin for errors, and do not know pods
// that are new on the node.
type AheadQuantities struct {
	// FourHours is the highest use in the four hours from now on.
	FourHours resource.Quantity `json:"fourHours"`
	// EightHours is the highest use in the eight hours from now on.
	EightHours resource.Quantity `json:"eightHours"`
}

// ConditionWithdrawn on a [NodeReport] is True while the manager keeps the node from selling anything. Only the manager
// sets and lifts it, and the agent publishes nothing meanwhile.
const ConditionWithdrawn = "Withdrawn"

// ConditionEvicted on a [NodeReport] is True when the pod of the node's last request was evicted, and False with the
// reason when it was not. Only the manager sets it.
const ConditionEvicted = "Evicted"
