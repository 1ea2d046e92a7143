package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ColocationPolicy says what Waterline may do on the nodes that it governs. An agent without a cluster reads the same
// document from its configuration file.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=cpol,categories=waterline
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`
// +kubebuilder:printcolumn:name="Priority",type=integer,JSONPath=`.spec.priority`
// +kubebuilder:printcolumn:name="Governed",type=integer,JSONPath=`.status.nodes.governed`,description="Nodes that go by this policy"
// +kubebuilder:printcolumn:name="Offering",type=integer,JSONPath=`.status.nodes.offering`,description="Of them, nodes with something to sell now"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ColocationPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ColocationPolicySpec   `json:"spec"`
	Status ColocationPolicyStatus `json:"status,omitempty"`
}

// ColocationPolicyList is a list of policies.
//
// +kubebuilder:object:root=true
type ColocationPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ColocationPolicy `json:"items"`
}

// ColocationPolicySpec is the specification of a [ColocationPolicy].
type ColocationPolicySpec struct {
	// Mode is Observe (the default: decide and report, write nothing), Enforce, or Off (give everything back). In YAML Off
	// needs quotes.
	// +kubebuilder:validation:Enum=Observe;Enforce;Off
	// +kubebuilder:default=Observe
	Mode string `json:"mode,omitempty"`

	// Priority decides where several policies select a node: the highest governs it as a whole, and of equal ones that
	// whose name comes first. Nothing is merged. Default 0.
	Priority int32 `json:"priority,omitempty"`
	// NodeSelector chooses nodes by their labels. Without it the policy selects all nodes.
	NodeSelector *LabelSelector `json:"nodeSelector,omitempty"`
	// Rollout limits the policy to a part of the nodes that it selects. Without it the policy holds on all of them.
	Rollout *RolloutSpec `json:"rollout,omitempty"`
	// Windows are the times in which something is sold. Without any it always is.
	// +kubebuilder:validation:MaxItems=16
	// +listType=map
	// +listMapKey=name
	Windows []WindowSpec `json:"windows,omitempty"`

	// CPU is how far the node's CPU is filled, and how its slack is sold. Without it none is sold.
	CPU *CPUSpec `json:"cpu,omitempty"`
	// Memory is the same for memory.
	Memory *MemorySpec `json:"memory,omitempty"`
	// Protect is what is done for online pods besides suppressing batch.
	Protect ProtectSpec `json:"protect,omitempty"`
	// Compat is under which names of others slack is sold.
	Compat CompatSpec `json:"compat,omitempty"`

	// Batch makes batch pods of pods without a label of their own, in namespaces labelled waterline.io/colocation=enabled, when
	// they are created and while the mode is Enforce. Of the rules of all policies that select a pod that of the highest
	// priority counts, then the first by the policy's name, then the first in it.
	// +kubebuilder:validation:MaxItems=64
	Batch []BatchRuleSpec `json:"batch,omitempty"`

	// Weight bounds and extends the weights that pods ask for.
	Weight WeightSpec `json:"weight,omitempty"`
	// Pods gives weights and CPUs to pods without an annotation. The first rule that selects a pod counts.
	// +kubebuilder:validation:MaxItems=64
	Pods []PodRuleSpec `json:"pods,omitempty"`
}

// RolloutSpec is on how many of the nodes that it selects a policy holds.
type RolloutSpec struct {
	// Percent of the selected nodes, from 0 to 100. Each node has a fixed place that depends on its UID and the policy's
	// name, so a node that is in stays in when the number grows. A node that is not in counts as not selected: the next
	// policy that selects it governs it.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	// +required
	Percent *int32 `json:"percent"`
}

// WindowSpec is a time of each day in which slack is sold.
// +kubebuilder:validation:XValidation:rule="!has(self.preDrain) || self.start != self.end && duration(self.preDrain) < timestamp((self.end > self.start ? '2026-01-01T' : '2026-01-02T') + self.end + ':00Z') - timestamp('2026-01-01T' + self.start + ':00Z')",message="preDrain must be shorter than the window; a window that never ends takes none"
type WindowSpec struct {
	// Name tells windows apart.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`
	// Start is when the window begins, as HH:MM on the clock of the time zone. On a day on which clocks are put back over
	// it, it is the later of the two times; where they are put forward over it, the time to which they are.
	// +kubebuilder:validation:MaxLength=5
	// +kubebuilder:validation:Pattern=`^([01][0-9]|2[0-3]):[0-5][0-9]$`
	Start string `json:"start"`
	// End is when the window ends, the earlier of the two times when clocks are put back over it. An end before the start
	// is on the next day; an end equal to the start means that the window never ends.
	// +kubebuilder:validation:MaxLength=5
	// +kubebuilder:validation:Pattern=`^([01][0-9]|2[0-3]):[0-5][0-9]$`
	End string `json:"end"`
	// TimeZone is the name of a time zone, such as Asia/Shanghai or UTC.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z][A-Za-z0-9_+/-]*$') && self != 'Local' && timestamp('2026-01-01T00:00:00Z').getHours(self) >= 0",message="write the name of a time zone, such as Asia/Shanghai"
	TimeZone string `json:"timeZone"`
	// PreDrain is how long before its end nothing new is sold any more, in hours, minutes and seconds, such as 15m or 1h30m.
	// It counts where no other window goes on. Default 0s.
	// +kubebuilder:validation:MaxLength=20
	// +kubebuilder:validation:Pattern=`^([0-9]{1,5}[hms]){1,3}$`
	PreDrain string `json:"preDrain,omitempty"`
}

// CPUSpec is how far a node's CPU is filled, and how its slack is sold to batch. Percentages have at most one decimal.
// +kubebuilder:validation:XValidation:rule="has(self.ratio) == (has(self.method) && self.method == 'static')",message="write ratio with method static, and only there"
type CPUSpec struct {
	// Waterline is up to which part of the capacity the node is filled, from 1% to 100%. Default 65%.
	// +kubebuilder:validation:MaxLength=8
	// +kubebuilder:validation:XValidation:rule="self.matches('^(100([.]0)?|[1-9][0-9]?([.][0-9])?)%$')",message="write a percentage from 1% to 100%"
	Waterline string `json:"waterline,omitempty"`
	// Method is predicted (the default: what online pods are not expected to use is sold), realtime (what they do not use
	// now) or static (a fixed part of the capacity, whatever they use).
	// +kubebuilder:validation:Enum=predicted;realtime;static
	Method string `json:"method,omitempty"`
	// Ratio is which part of the capacity is sold by method static, from 0% to 1000%: 300% sells each CPU three times.
	// +kubebuilder:validation:MaxLength=8
	// +kubebuilder:validation:XValidation:rule="self.matches('^(1000([.]0)?|([1-9][0-9]{0,2}|0)([.][0-9])?)%$')",message="write a percentage from 0% to 1000%"
	Ratio string `json:"ratio,omitempty"`
	// Mid is which part of what is under the waterline may be offered as the mid tier, at most. Default 0%.
	// +kubebuilder:validation:MaxLength=8
	// +kubebuilder:validation:XValidation:rule="self.matches('^(100([.]0)?|[1-9]?[0-9]([.][0-9])?)%$')",message="write a percentage from 0% to 100%"
	Mid string `json:"mid,omitempty"`
	// SuppressBy is what keeps batch to what online pods leave: cpuset (the default: fewer CPUs, and a CFS quota where that
	// is less than one), quota (a CFS quota on each batch pod), both (as few CPUs as hold it, and the quota) or none.
	// +kubebuilder:validation:Enum=cpuset;quota;both;none
	SuppressBy string `json:"suppressBy,omitempty"`
	// Floor is which part of the capacity batch keeps whatever online pods need, from 0% (the default) to 100%. By weight they
	// come first there too.
	// +kubebuilder:validation:MaxLength=8
	// +kubebuilder:validation:XValidation:rule="self.matches('^(100([.]0)?|[1-9]?[0-9]([.][0-9])?)%$')",message="write a percentage from 0% to 100%"
	Floor string `json:"floor,omitempty"`
	// Idle lets batch pods that have no weight of their own run only when no other pod of the BestEffort class wants to
	// (cpu.idle), and does without weights among them. Default false.
	Idle bool `json:"idle,omitempty"`
	// GroupIdentity tells kernels that have cpu.bvt_warp_ns, as those of Alibaba Cloud Linux and Anolis OS, which pods are
	// online (2), and that batch pods without a weight of their own come after them (-1). Default false.
	GroupIdentity bool `json:"groupIdentity,omitempty"`
}

// MemorySpec is how far a node's memory is filled, and how its slack is sold to batch. Percentages have at most one decimal.
// +kubebuilder:validation:XValidation:rule="has(self.ratio) == (has(self.method) && self.method == 'static')",message="write ratio with method static, and only there"
type MemorySpec struct {
	// Waterline is up to which part of the capacity the node is filled, from 1% to 100%. Default 80%.
	// +kubebuilder:validation:MaxLength=8
	// +kubebuilder:validation:XValidation:rule="self.matches('^(100([.]0)?|[1-9][0-9]?([.][0-9])?)%$')",message="write a percentage from 1% to 100%"
	Waterline string `json:"waterline,omitempty"`
	// Method is as for CPU.
	// +kubebuilder:validation:Enum=predicted;realtime;static
	Method string `json:"method,omitempty"`
	// Ratio is which part of the capacity is sold by method static, from 0% to 100%: memory is never sold beyond what there
	// is.
	// +kubebuilder:validation:MaxLength=8
	// +kubebuilder:validation:XValidation:rule="self.matches('^(100([.]0)?|[1-9]?[0-9]([.][0-9])?)%$')",message="write a percentage from 0% to 100%"
	Ratio string `json:"ratio,omitempty"`
	// Mid is as for CPU.
	// +kubebuilder:validation:MaxLength=8
	// +kubebuilder:validation:XValidation:rule="self.matches('^(100([.]0)?|[1-9]?[0-9]([.][0-9])?)%$')",message="write a percentage from 0% to 100%"
	Mid string `json:"mid,omitempty"`
}

// ProtectSpec is what is done for online pods besides suppressing batch.
// +kubebuilder:validation:XValidation:rule="!has(self.evict) || !has(self.evict.freeze) || !self.evict.freeze || has(self.memory) && self.memory",message="evict.freeze needs memory: true"
type ProtectSpec struct {
	// Burst lets online pods exceed their CFS quota for moments, out of what they left unused before. Default: true where
	// the policy has cpu, else false.
	Burst *bool `json:"burst,omitempty"`
	// Memory has the kernel reclaim other memory before the memory that online pods request, and that of pods of the classes
	// LSE and LSR never; before memory is short, batch grows no more and is asked for page cache. Cgroup v2 only;
	// nothing is done where the kubelet's MemoryQoS is on. Default false.
	Memory *bool `json:"memory,omitempty"`
	// Culprit finds out which neighbour an online pod waits for when it waits for CPUs for longer than before. It is named in
	// events and, if it is a batch pod, throttled on trial: it stays so only if the other then waits less.
	// Default false.
	Culprit bool `json:"culprit,omitempty"`
	// Evict has batch pods evicted when nothing that is done on the node helps: no memory is left for batch, or a batch pod has
	// had hardly any CPU for minutes. Without it none is.
	Evict *EvictSpec `json:"evict,omitempty"`
}

// EvictSpec bounds evictions.
type EvictSpec struct {
	// PerNodePerHour is how many batch pods may be evicted from one node in an hour, 0 to 600. Default 6. With 0 none is.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=600
	PerNodePerHour *int32 `json:"perNodePerHour,omitempty"`
	// Freeze has the pod that is to leave for want of memory stand still until it does, so that it takes no more: for 20 s at
	// most, and then nobody for five minutes. It needs protect.memory, and so cgroup v2. Default false.
	Freeze bool `json:"freeze,omitempty"`
}

// CompatSpec is under which names of others slack is sold. One slack is sold once: the names stand instead of ours.
type CompatSpec struct {
	// Koordinator sells slack as kubernetes.io/batch-cpu, kubernetes.io/batch-memory and so on, so that workloads made for
	// Koordinator run unchanged.
	Koordinator bool `json:"koordinator,omitempty"`
}

// WeightSpec bounds and extends the weights that pods ask for.
type WeightSpec struct {
	// Scope is node (the default: a weight counts against every pod of the node) or class (only against pods of the same
	// QoS class).
	// +kubebuilder:validation:Enum=node;class
	Scope string `json:"scope,omitempty"`
	// Quota is kubelet (the default: weighted pods keep the CFS quota of their limits) or unlimited (it is lifted). The
	// annotation waterline.io/cpu-quota on a pod beats it.
	// +kubebuilder:validation:Enum=kubelet;unlimited
	Quota string `json:"quota,omitempty"`
	// Max is the highest weight that a pod may have, in shares, 2 to 262144. Default 262144. A pod that asks for more
	// gets this.
	// +kubebuilder:validation:Minimum=2
	// +kubebuilder:validation:Maximum=262144
	Max *int64 `json:"max,omitempty"`
	// Namespaces replaces Max for the pods of some namespaces. The first entry whose selector matches counts.
	// +kubebuilder:validation:MaxItems=64
	Namespaces []NamespaceMaxSpec `json:"namespaces,omitempty"`
	// OverrideGuaranteed lets weights take CPU that Guaranteed pods were promised. Default false: the burstable class
	// never weighs more than what is allocatable less what Guaranteed pods request.
	OverrideGuaranteed bool `json:"overrideGuaranteed,omitempty"`
	// BestEffort is class (the default: a BestEffort pod's weight counts among BestEffort pods only) or promote (the
	// class is raised too).
	// +kubebuilder:validation:Enum=class;promote
	BestEffort string `json:"bestEffort,omitempty"`
}

// NamespaceMaxSpec is the highest weight for the pods of some namespaces.
type NamespaceMaxSpec struct {
	// Selector chooses namespaces by their labels; {} chooses all.
	// +required
	Selector *LabelSelector `json:"selector"`
	// Max is in shares, 2 to 262144.
	// +kubebuilder:validation:Minimum=2
	// +kubebuilder:validation:Maximum=262144
	Max int64 `json:"max"`
}

// BatchRuleSpec makes batch pods of the pods that it selects.
type BatchRuleSpec struct {
	// Selector chooses pods by their labels; {} chooses all.
	// +required
	Selector *LabelSelector `json:"selector"`
	// Percent is of how many of their owners (Deployments, CronJobs, …) the pods are batch, from 0 to 100. Default 100. Each
	// owner has a fixed place, so what is in stays in when the number grows; what is not in counts as not selected.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Percent *int32 `json:"percent,omitempty"`
	// Tier is batch (the default) or mid: what pods ask for that have no priority in a band of batch.
	// +kubebuilder:validation:Enum=batch;mid
	Tier string `json:"tier,omitempty"`
}

// PodRuleSpec gives the pods that it selects what annotations would give them.
// +kubebuilder:validation:XValidation:rule="has(self.cpuShare) || has(self.cpuManager)",message="a rule must give something: write cpuShare or cpuManager"
// +kubebuilder:validation:XValidation:rule="!has(self.cpuPlacement) || has(self.cpuManager)",message="cpuPlacement counts together with cpuManager: write that as well"
type PodRuleSpec struct {
	// Selector chooses pods by their labels; {} chooses all.
	// +required
	Selector *LabelSelector `json:"selector"`
	// CPUShare is as in the annotation waterline.io/cpu-share: shares, 2 to 262144.
	// +kubebuilder:validation:Minimum=2
	// +kubebuilder:validation:Maximum=262144
	CPUShare *int64 `json:"cpuShare,omitempty"`
	// CPUManager is as in the annotation waterline.io/cpu-manager: none, share or exclusive.
	// +kubebuilder:validation:Enum=none;share;exclusive
	CPUManager string `json:"cpuManager,omitempty"`
	// CPUPlacement is as in the annotation waterline.io/cpu-placement: packed, spread or pcpu-only.
	// +kubebuilder:validation:Enum=packed;spread;pcpu-only
	CPUPlacement string `json:"cpuPlacement,omitempty"`
}

// ColocationPolicyStatus is what became of a policy. The manager writes it.
type ColocationPolicyStatus struct {
	// ObservedGeneration is the generation of the policy that the status is about.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Nodes counts nodes.
	Nodes NodeCounts `json:"nodes,omitempty"`
	// SlippedPods counts batch pods on governed nodes that were admitted without asking for batch resources, so that the
	// scheduler does not see what they take.
	SlippedPods int32 `json:"slippedPods,omitempty"`
	// Conditions are Ready and Overlaps.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NodeCounts counts the nodes that a policy is about.
type NodeCounts struct {
	// Selected by the node selector.
	Selected int32 `json:"selected"`
	// Governed: of them, those on which the policy holds. The others are not rolled out yet, are governed by a policy of
	// higher rank, or opted out.
	Governed int32 `json:"governed"`
	// Enforcing: of them, those whose agent has reported that it carries out the policy as it is now.
	Enforcing int32 `json:"enforcing"`
	// Offering: of them, those that have something to sell now.
	Offering int32 `json:"offering"`
}

// Conditions of a [ColocationPolicy].
const (
	// ConditionReady is True when all nodes that the policy governs report that they go by it as it is now.
	ConditionReady = "Ready"
	// ConditionOverlaps is True when another policy selects some of the same nodes; the message names it, and which of the
	// two governs them.
	ConditionOverlaps = "Overlaps"
)
