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

// ColocationPolicySpec says what Waterline may do, on which nodes, when and how far.
type ColocationPolicySpec struct {
	// Mode says how far the policy goes. Observe (the default) decides and reports everything and writes nothing. Enforce
	// carries out the decisions. Disabled restores every cgroup file within seconds and withdraws the offer.
	// +kubebuilder:validation:Enum=Observe;Enforce;Disabled
	// +kubebuilder:default=Observe
	Mode string `json:"mode,omitempty"`

	// Priority ranks the policies that select the same node. The policy with the highest priority governs the node alone;
	// among equal priorities the name that sorts first wins. Policies are never merged. Default 0.
	Priority int32 `json:"priority,omitempty"`
	// NodeSelector selects nodes by their labels. Without it the policy selects all nodes. A node with the label
	// waterline.io/opt-out is never governed.
	NodeSelector *LabelSelector `json:"nodeSelector,omitempty"`
	// Rollout limits the policy to a part of the selected nodes. Without it the policy holds on all of them.
	Rollout *RolloutSpec `json:"rollout,omitempty"`
	// Windows are the times of day in which slack is sold. Without windows slack is always sold.
	// +kubebuilder:validation:MaxItems=16
	// +listType=map
	// +listMapKey=name
	Windows []WindowSpec `json:"windows,omitempty"`

	// CPU says up to where the node's CPU is filled, how its slack is sold and how batch is suppressed. Without it no CPU
	// is sold and batch is not suppressed.
	CPU *CPUSpec `json:"cpu,omitempty"`
	// Memory says up to where the node's memory is filled and how its slack is sold. Without it no memory is sold.
	Memory *MemorySpec `json:"memory,omitempty"`
	// Protect says what is done for online pods beyond suppressing batch.
	Protect ProtectSpec `json:"protect,omitempty"`
	// ResourceNames are the names under which slack is sold. Waterline (the default) sells waterline.io/batch-cpu,
	// batch-memory, mid-cpu and mid-memory. Koordinator sells the same slack as kubernetes.io/batch-cpu and so on instead,
	// so that workloads made for Koordinator run unchanged. One slack is never sold under both.
	// +kubebuilder:validation:Enum=Waterline;Koordinator
	ResourceNames string `json:"resourceNames,omitempty"`

	// BatchPods selects unlabelled pods to admit as batch. The webhook labels them when they are created, in namespaces
	// labelled waterline.io/colocation=enabled, while the mode is Enforce. If rules of several policies select a pod, the
	// rule of the policy with the highest priority counts, then the policy name that sorts first, then the first rule in
	// it.
	// +kubebuilder:validation:MaxItems=64
	BatchPods []BatchPodsSpec `json:"batchPods,omitempty"`

	// Weight bounds and extends the weights that pods request by annotation.
	Weight WeightSpec `json:"weight,omitempty"`
	// PodDefaults give weights and CPUs to pods that have no such annotation. The first rule that selects a pod counts.
	// +kubebuilder:validation:MaxItems=64
	PodDefaults []PodDefaultsSpec `json:"podDefaults,omitempty"`
}

// RolloutSpec limits a policy to a part of the nodes that it selects.
type RolloutSpec struct {
	// Percent of the selected nodes on which the policy holds, from 0 to 100. A hash of the node's UID and the policy's
	// name gives each node a fixed place, so a node that is in stays in when the percentage grows. A node that is not in
	// counts as not selected: the policy with the next priority governs it.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	// +required
	Percent *int32 `json:"percent"`
}

// WindowSpec is a time of each day in which slack is sold.
// +kubebuilder:validation:XValidation:rule="!has(self.drainBefore) || self.start != self.end && duration(self.drainBefore) < timestamp((self.end > self.start ? '2026-01-01T' : '2026-01-02T') + self.end + ':00Z') - timestamp('2026-01-01T' + self.start + ':00Z')",message="drainBefore must be shorter than the window; a window that never ends takes none"
type WindowSpec struct {
	// Name identifies the window in this policy.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`
	// Start is when the window begins, as HH:MM in the time zone. If clocks are put back over it, the later of the two
	// times counts. If clocks are put forward over it, the window begins at the time to which they are put.
	// +kubebuilder:validation:MaxLength=5
	// +kubebuilder:validation:Pattern=`^([01][0-9]|2[0-3]):[0-5][0-9]$`
	Start string `json:"start"`
	// End is when the window ends, as HH:MM in the time zone. If clocks are put back over it, the earlier of the two times
	// counts. An end before the start is on the next day. An end equal to the start means that the window never ends.
	// +kubebuilder:validation:MaxLength=5
	// +kubebuilder:validation:Pattern=`^([01][0-9]|2[0-3]):[0-5][0-9]$`
	End string `json:"end"`
	// TimeZone is the name of a time zone, such as Asia/Shanghai or UTC.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z][A-Za-z0-9_+/-]*$') && self != 'Local' && timestamp('2026-01-01T00:00:00Z').getHours(self) >= 0",message="write the name of a time zone, such as Asia/Shanghai"
	TimeZone string `json:"timeZone"`
	// DrainBefore is the time before the end in which nothing new is sold and running batch pods may finish, in hours,
	// minutes and seconds, such as 15m or 1h30m. It has no effect while another window continues. Default 0s.
	// +kubebuilder:validation:MaxLength=20
	// +kubebuilder:validation:Pattern=`^([0-9]{1,5}[hms]){1,3}$`
	DrainBefore string `json:"drainBefore,omitempty"`
}

// CPUSpec says up to where a node's CPU is filled, how its slack is sold and how batch is suppressed. Percentages have
// at most one decimal.
// +kubebuilder:validation:XValidation:rule="has(self.ratio) == (has(self.method) && self.method == 'Static')",message="write ratio with method Static, and only there"
type CPUSpec struct {
	// Waterline is the part of the capacity up to which the node is filled, from 1% to 100%. Default 65%.
	// +kubebuilder:validation:MaxLength=8
	// +kubebuilder:validation:XValidation:rule="self.matches('^(100([.]0)?|[1-9][0-9]?([.][0-9])?)%$')",message="write a percentage from 1% to 100%"
	Waterline string `json:"waterline,omitempty"`
	// Method says how the offer is computed. Predicted (the default) sells what remains under the waterline beside the
	// predicted peak of online pods. Realtime sells what remains beside their use now. Static sells a fixed part of the
	// capacity, whatever they use.
	// +kubebuilder:validation:Enum=Predicted;Realtime;Static
	Method string `json:"method,omitempty"`
	// Ratio is the part of the capacity that method Static sells, from 0% to 1000%: 300% sells each CPU three times.
	// +kubebuilder:validation:MaxLength=8
	// +kubebuilder:validation:XValidation:rule="self.matches('^(1000([.]0)?|([1-9][0-9]{0,2}|0)([.][0-9])?)%$')",message="write a percentage from 0% to 1000%"
	Ratio string `json:"ratio,omitempty"`
	// Mid is the largest part of the room under the waterline that is offered in the tier mid, from 0% (the default) to
	// 100%. An offer in tier mid is expected to last a day, an offer in tier batch an hour.
	// +kubebuilder:validation:MaxLength=8
	// +kubebuilder:validation:XValidation:rule="self.matches('^(100([.]0)?|[1-9]?[0-9]([.][0-9])?)%$')",message="write a percentage from 0% to 100%"
	Mid string `json:"mid,omitempty"`
	// Suppression says how batch is limited to the CPU that online pods leave under the waterline. CPUSet (the default)
	// gives batch fewer CPUs, and a CFS quota where less than one CPU is left. Quota gives each batch pod a CFS quota.
	// Both gives batch as few CPUs as hold it, and the quotas. None limits batch by its weights alone.
	// +kubebuilder:validation:Enum=CPUSet;Quota;Both;None
	Suppression string `json:"suppression,omitempty"`
	// MinBatch is the part of the capacity that batch keeps however much online pods need, from 0% (the default) to 100%.
	// Online pods still come first there, by their weights.
	// +kubebuilder:validation:MaxLength=8
	// +kubebuilder:validation:XValidation:rule="self.matches('^(100([.]0)?|[1-9]?[0-9]([.][0-9])?)%$')",message="write a percentage from 0% to 100%"
	MinBatch string `json:"minBatch,omitempty"`
	// SchedIdle sets cpu.idle on batch pods that have no weight of their own. They then run only while no other pod of the
	// BestEffort class wants the CPU, and have no weights among themselves. Needs Linux 5.15. Default false.
	SchedIdle bool `json:"schedIdle,omitempty"`
	// GroupIdentity writes cpu.bvt_warp_ns on kernels that have it, such as those of Alibaba Cloud Linux and Anolis OS: 2
	// for online pods, -1 for batch pods that have no weight of their own. Default false.
	GroupIdentity bool `json:"groupIdentity,omitempty"`
}

// MemorySpec says up to where a node's memory is filled and how its slack is sold. Percentages have at most one
// decimal.
// +kubebuilder:validation:XValidation:rule="has(self.ratio) == (has(self.method) && self.method == 'Static')",message="write ratio with method Static, and only there"
type MemorySpec struct {
	// Waterline is the part of the capacity up to which the node is filled, from 1% to 100%. Default 80%.
	// +kubebuilder:validation:MaxLength=8
	// +kubebuilder:validation:XValidation:rule="self.matches('^(100([.]0)?|[1-9][0-9]?([.][0-9])?)%$')",message="write a percentage from 1% to 100%"
	Waterline string `json:"waterline,omitempty"`
	// Method says how the offer is computed, as cpu.method does: Predicted (the default), Realtime or Static.
	// +kubebuilder:validation:Enum=Predicted;Realtime;Static
	Method string `json:"method,omitempty"`
	// Ratio is the part of the capacity that method Static sells, from 0% to 100%. Memory is never sold twice.
	// +kubebuilder:validation:MaxLength=8
	// +kubebuilder:validation:XValidation:rule="self.matches('^(100([.]0)?|[1-9]?[0-9]([.][0-9])?)%$')",message="write a percentage from 0% to 100%"
	Ratio string `json:"ratio,omitempty"`
	// Mid is the largest part of the room under the waterline that is offered in the tier mid, as cpu.mid. Default 0%.
	// +kubebuilder:validation:MaxLength=8
	// +kubebuilder:validation:XValidation:rule="self.matches('^(100([.]0)?|[1-9]?[0-9]([.][0-9])?)%$')",message="write a percentage from 0% to 100%"
	Mid string `json:"mid,omitempty"`
}

// ProtectSpec says what is done for online pods beyond suppressing batch.
// +kubebuilder:validation:XValidation:rule="!has(self.eviction) || !has(self.eviction.freeze) || !self.eviction.freeze || has(self.memory) && self.memory",message="eviction.freeze needs memory: true"
type ProtectSpec struct {
	// Burst lets online pods exceed their CPU limit for moments, by quota that they did not use before. Default: true if
	// the policy has cpu, else false.
	Burst *bool `json:"burst,omitempty"`
	// Memory makes the kernel reclaim batch memory before the memory that online pods request, and never the memory that
	// pods of classes LSE and LSR request. Before memory runs short, batch pods may not grow, and page cache is reclaimed
	// from them. Needs cgroup v2. Does nothing where the kubelet's MemoryQoS is on. Default false.
	Memory *bool `json:"memory,omitempty"`
	// Interference finds the neighbour that makes an online pod wait for CPUs. It is named in events. A batch pod is also
	// throttled on trial, and stays throttled only if the online pod then waits less. Default false.
	Interference bool `json:"interference,omitempty"`
	// Eviction evicts batch pods when nothing that is done on the node helps: no memory is left for batch, or a batch pod
	// had hardly any CPU for minutes. Without it no pod is evicted.
	Eviction *EvictionSpec `json:"eviction,omitempty"`
}

// EvictionSpec bounds evictions.
type EvictionSpec struct {
	// PerNodePerHour is the number of batch pods that may be evicted from one node in an hour, from 0 to 600. Default 6.
	// With 0 no pod is evicted.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=600
	PerNodePerHour *int32 `json:"perNodePerHour,omitempty"`
	// Freeze freezes the pod whose eviction is requested for want of memory until it leaves, so that it takes no more
	// memory: for 20 s at most, and then no pod for five minutes. Needs protect.memory, and so cgroup v2. Default false.
	Freeze bool `json:"freeze,omitempty"`
}

// WeightSpec bounds and extends the weights that pods request.
type WeightSpec struct {
	// Scope says against which pods a weight counts: Node (the default) against every pod of the node, Class only against
	// pods of the same QoS class.
	// +kubebuilder:validation:Enum=Node;Class
	Scope string `json:"scope,omitempty"`
	// Quota says what becomes of the CFS quota of weighted pods: Kubelet (the default) keeps it as the kubelet sets it,
	// Unlimited lifts it. The annotation waterline.io/cpu-quota on a pod takes precedence.
	// +kubebuilder:validation:Enum=Kubelet;Unlimited
	Quota string `json:"quota,omitempty"`
	// Max is the highest weight of a pod in shares, from 2 to 262144 (the default). A pod that requests more gets this.
	// +kubebuilder:validation:Minimum=2
	// +kubebuilder:validation:Maximum=262144
	Max *int64 `json:"max,omitempty"`
	// Namespaces replace Max for the pods of some namespaces. The first entry whose selector matches counts.
	// +kubebuilder:validation:MaxItems=64
	Namespaces []NamespaceMaxSpec `json:"namespaces,omitempty"`
	// OverrideGuaranteed lets weights take CPU that Guaranteed pods request. Without it (the default) the Burstable class
	// never weighs more than allocatable CPU less the requests of Guaranteed pods.
	OverrideGuaranteed bool `json:"overrideGuaranteed,omitempty"`
	// BestEffort says against which pods the weight of a BestEffort pod counts: Class (the default) only against
	// BestEffort pods, Promote against every pod of the node, by raising the weight of the BestEffort class.
	// +kubebuilder:validation:Enum=Class;Promote
	BestEffort string `json:"bestEffort,omitempty"`
}

// NamespaceMaxSpec is the highest weight of the pods of some namespaces.
type NamespaceMaxSpec struct {
	// Selector selects namespaces by their labels; {} selects all.
	// +required
	Selector *LabelSelector `json:"selector"`
	// Max is the highest weight in shares, from 2 to 262144.
	// +kubebuilder:validation:Minimum=2
	// +kubebuilder:validation:Maximum=262144
	Max int64 `json:"max"`
}

// BatchPodsSpec selects pods to admit as batch.
type BatchPodsSpec struct {
	// Selector selects pods by their labels; {} selects all.
	// +required
	Selector *LabelSelector `json:"selector"`
	// NamespaceSelector selects the pods' namespaces by their labels. Without it pods of all namespaces are selected.
	NamespaceSelector *LabelSelector `json:"namespaceSelector,omitempty"`
	// Percent of the selected pods' owners (Deployments, CronJobs, …) whose pods are admitted as batch, from 0 to 100 (the
	// default). Each owner has a fixed place, so an owner that is in stays in when the percentage grows. Pods of other
	// owners count as not selected.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Percent *int32 `json:"percent,omitempty"`
	// Tier is the resource tier that the pods request, Batch (the default) or Mid. A pod whose priority is in the band of
	// a tier requests that tier instead.
	// +kubebuilder:validation:Enum=Batch;Mid
	Tier string `json:"tier,omitempty"`
}

// PodDefaultsSpec gives the pods that it selects what annotations would give them. An annotation on the pod takes
// precedence.
// +kubebuilder:validation:XValidation:rule="has(self.cpuShare) || has(self.cpuManager)",message="a rule must give something: write cpuShare or cpuManager"
// +kubebuilder:validation:XValidation:rule="!has(self.cpuPlacement) || has(self.cpuManager)",message="cpuPlacement counts together with cpuManager: write that as well"
type PodDefaultsSpec struct {
	// Selector selects pods by their labels; {} selects all.
	// +required
	Selector *LabelSelector `json:"selector"`
	// NamespaceSelector selects the pods' namespaces by their labels. Without it pods of all namespaces are selected.
	NamespaceSelector *LabelSelector `json:"namespaceSelector,omitempty"`
	// CPUShare is the weight in shares, from 2 to 262144, as in the annotation waterline.io/cpu-share.
	// +kubebuilder:validation:Minimum=2
	// +kubebuilder:validation:Maximum=262144
	CPUShare *int64 `json:"cpuShare,omitempty"`
	// CPUManager is the CPU mode, as in the annotation waterline.io/cpu-manager: None, Share (home CPUs on which others
	// may run too) or Exclusive (CPUs of its own).
	// +kubebuilder:validation:Enum=None;Share;Exclusive
	CPUManager string `json:"cpuManager,omitempty"`
	// CPUPlacement says how the CPUs are chosen, as the annotation waterline.io/cpu-placement does: Packed (the default)
	// on as few NUMA nodes, caches and cores as possible, Spread over cores, or PhysicalCores in whole physical cores
	// only.
	// +kubebuilder:validation:Enum=Packed;Spread;PhysicalCores
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
