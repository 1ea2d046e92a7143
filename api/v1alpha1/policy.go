package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ColocationPolicy says what Waterline may do on the nodes that it governs. An agent without a cluster reads the same
// document from its configuration file.
type ColocationPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ColocationPolicySpec `json:"spec"`
}

// ColocationPolicySpec is the specification of a [ColocationPolicy].
type ColocationPolicySpec struct {
	// Mode is Observe (the default: decide and report, write nothing), Enforce, or Off (give everything back).
	Mode string `json:"mode,omitempty"`
	// CPU is how far the node's CPU is filled, and how its slack is sold. Without it nothing is sold.
	CPU *SellSpec `json:"cpu,omitempty"`
	// Memory is the same for memory.
	Memory *SellSpec `json:"memory,omitempty"`
	// Weight bounds and extends the weights that pods ask for.
	Weight WeightSpec `json:"weight,omitempty"`
	// Pods gives weights to pods without an annotation. The first rule that selects a pod counts.
	Pods []PodRuleSpec `json:"pods,omitempty"`
}

// SellSpec is how far a resource of a node is filled, and how its slack is sold to batch.
type SellSpec struct {
	// Waterline is up to which part of the capacity the node is filled, from 1% to 100%. Default 65% for CPU and 80% for
	// memory.
	Waterline string `json:"waterline,omitempty"`
	// Method is predicted (the default: what online pods are not expected to use is sold), realtime (what they do not use
	// now) or static (a fixed part of the capacity, whatever they use).
	Method string `json:"method,omitempty"`
	// Ratio is which part of the capacity is sold by method static. For CPU it may be above 100%: "300%" sells each CPU
	// three times. Memory is never sold beyond what there is.
	Ratio string `json:"ratio,omitempty"`
	// Mid is which part of what is under the waterline may be offered as the mid tier, at most. Default 0%.
	Mid string `json:"mid,omitempty"`
}

// WeightSpec bounds and extends the weights that pods ask for.
type WeightSpec struct {
	// Scope is node (the default: a weight counts against every pod of the node) or class (only against pods of the same
	// QoS class).
	Scope string `json:"scope,omitempty"`
	// Quota is kubelet (the default: weighted pods keep the CFS quota of their limits) or unlimited (it is lifted). The
	// annotation waterline.io/cpu-quota on a pod beats it.
	Quota string `json:"quota,omitempty"`
	// Max is the highest weight that a pod may have, in shares, 2 to 262144. Default 262144. A pod that asks for more
	// gets this.
	Max *int64 `json:"max,omitempty"`
	// Namespaces replaces Max for the pods of some namespaces. The first entry whose selector matches counts.
	Namespaces []NamespaceMaxSpec `json:"namespaces,omitempty"`
	// OverrideGuaranteed lets weights take CPU that Guaranteed pods were promised. Default false: the burstable class
	// never weighs more than what is allocatable less what Guaranteed pods request.
	OverrideGuaranteed bool `json:"overrideGuaranteed,omitempty"`
	// BestEffort is class (the default: a BestEffort pod's weight counts among BestEffort pods only) or promote (the
	// class is raised too).
	BestEffort string `json:"bestEffort,omitempty"`
}

// NamespaceMaxSpec is the highest weight for the pods of some namespaces.
type NamespaceMaxSpec struct {
	// Selector chooses namespaces by their labels.
	Selector metav1.LabelSelector `json:"selector"`
	// Max is in shares, 2 to 262144.
	Max int64 `json:"max"`
}

// PodRuleSpec gives the pods that it selects what annotations would give them.
type PodRuleSpec struct {
	// Selector chooses pods by their labels.
	Selector metav1.LabelSelector `json:"selector"`
	// CPUShare is as in the annotation waterline.io/cpu-share.
	CPUShare *int64 `json:"cpuShare,omitempty"`
	// CPUManager is what [AnnotationCPUManager] would say: none, share or exclusive.
	CPUManager string `json:"cpuManager,omitempty"`
	// CPUPlacement is what [AnnotationCPUPlacement] would say: packed, spread or pcpu-only.
	CPUPlacement string `json:"cpuPlacement,omitempty"`
}
