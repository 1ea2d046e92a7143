package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ColocationPolicy sets what Waterline may do on the nodes that it governs. An agent without a cluster reads the same
// document from its configuration file.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=colo,categories=waterline
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`
// +kubebuilder:printcolumn:name="Priority",type=integer,JSONPath=`.spec.priority`
// +kubebuilder:printcolumn:name="Governed",type=integer,JSONPath=`.status.nodes.governed`,description="Nodes that this policy governs"
// +kubebuilder:printcolumn:name="Offering",type=integer,JSONPath=`.status.nodes.offering`,description="Governed nodes with something to sell now"
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
	// Mode is how far Waterline goes on the governed nodes. Observe (the default) decides and reports, and writes
	// nothing; settings that Enforce wrote before are restored. Enforce carries the decisions out. Disabled restores
	// every setting within seconds, withdraws the offer and decides nothing. Start with Observe, read the NodeReports,
	// then enforce.
	// +kubebuilder:default=Observe
	Mode PolicyMode `json:"mode,omitempty"`

	// Priority ranks policies that select the same node: the highest priority governs the node, and of equal priorities
	// the policy whose name sorts first. One policy governs a node as a whole; policies are never merged. A whole
	// number, default 0. The policy of the chart has -1000.
	Priority int32 `json:"priority,omitempty"`
	// NodeSelector selects nodes by their labels. A node with the annotation waterline.io/pause or the label
	// waterline.io/opt-out is never governed. Default: all nodes.
	NodeSelector *LabelSelector `json:"nodeSelector,omitempty"`
	// Rollout limits the policy to a part of the selected nodes. Default: all of them.
	Rollout *RolloutSpec `json:"rollout,omitempty"`
	// Windows are the times of day in which slack is sold; at most 16. Default: always.
	// +kubebuilder:validation:MaxItems=16
	// +listType=map
	// +listMapKey=name
	Windows []WindowSpec `json:"windows,omitempty"`

	// CPU sets how far the nodes' CPU is filled, how its slack is sold to batch pods, and how batch is suppressed when
	// online pods need the CPU. Without it no CPU is sold and batch is not suppressed. {} takes every default.
	CPU *CPUSpec `json:"cpu,omitempty"`
	// Memory sets how far the nodes' memory is filled, and how its slack is sold to batch pods. Without it no memory is
	// sold. {} takes every default.
	Memory *MemorySpec `json:"memory,omitempty"`
	// Protect sets what Waterline does for online pods besides suppressing batch.
	Protect ProtectSpec `json:"protect,omitempty"`
	// IsolatedCPUs is how CPUs are used that the kernel keeps out of load balancing (isolcpus). Unused (the default)
	// leaves them out: no pod gets one as its own or its home, no list of shared CPUs that Waterline writes contains
	// one, and nothing is sold for them. Used treats them like the others, for online pods: set it where pods with CPUs
	// of their own, or with threads that they pin themselves, are meant to run there. Batch pods never do.
	// +kubebuilder:default=Unused
	IsolatedCPUs IsolatedCPUsUse `json:"isolatedCPUs,omitempty"`

	// BatchPods selects pods without a QoS label to be admitted as batch, in namespaces labelled
	// waterline.io/colocation=enabled; at most 64 rules. The rules count when a pod is created, whatever node it gets,
	// and only in mode Enforce. Of the rules of all policies that select a pod, the rule of the policy with the highest
	// priority counts, then of the policy whose name sorts first, then the first in the list. Default: none.
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	BatchPods []BatchPodsSpec `json:"batchPods,omitempty"`

	// Weight bounds and extends the CPU weights that pods request.
	Weight WeightSpec `json:"weight,omitempty"`
	// Privileges allows the pods of namespaces what could harm others; at most 64 entries. All entries that match a
	// namespace count. What no entry allows has no effect, and the pod gets one event. Pods of kube-system need no
	// privilege. Default: none.
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	Privileges []PrivilegeSpec `json:"privileges,omitempty"`
	// PodDefaults gives CPU weights and CPU sets to pods without an annotation; at most 64 rules. An annotation on the
	// pod takes precedence. The first matching rule with a cpuShare sets the weight, the first one with a cpuManager
	// the CPU set. Use it where an annotation on a pod template would force a rollout. Default: none.
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	PodDefaults []PodDefaultsSpec `json:"podDefaults,omitempty"`
}

// RolloutSpec limits a policy to a part of the nodes that it selects.
type RolloutSpec struct {
	// Nodes is the part of the selected nodes that the policy governs, a whole percentage from 0% to 100%. Each node has a
	// fixed place, computed from its UID and the policy's name, so a node that is in stays in when the part grows. A node
	// that is not in counts as not selected: the next policy that selects it governs it.
	// +kubebuilder:validation:MaxLength=4
	// +kubebuilder:validation:XValidation:rule="self.matches('^(100|[1-9]?[0-9])%$')",message="write a whole percentage from 0% to 100%"
	// +required
	Nodes string `json:"nodes"`
}

// WindowSpec is a time of each day in which slack is sold.
// +kubebuilder:validation:XValidation:rule="!has(self.drainBefore) || self.start != self.end && duration(self.drainBefore) < timestamp((self.end > self.start ? '2026-01-01T' : '2026-01-02T') + self.end + ':00Z') - timestamp('2026-01-01T' + self.start + ':00Z')",message="drainBefore must be shorter than the window; a window that never ends takes none"
type WindowSpec struct {
	// Name identifies the window in its policy: at most 63 lower-case letters, digits, and hyphens between them.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`
	// Start is the time at which the window begins, as HH:MM on the clock of the time zone. When clocks are put back
	// over it, the window begins at the later of the two times; when they are put forward over it, at the time to which
	// they are put.
	// +kubebuilder:validation:MaxLength=5
	// +kubebuilder:validation:Pattern=`^([01][0-9]|2[0-3]):[0-5][0-9]$`
	Start string `json:"start"`
	// End is the time at which the window ends, as HH:MM. An end before the start is on the next day; an end equal to
	// the start makes a window that never ends. When clocks are put back over it, the window ends at the earlier of the
	// two times.
	// +kubebuilder:validation:MaxLength=5
	// +kubebuilder:validation:Pattern=`^([01][0-9]|2[0-3]):[0-5][0-9]$`
	End string `json:"end"`
	// TimeZone is the IANA name of a time zone, such as Asia/Shanghai or UTC.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z][A-Za-z0-9_+/-]*$') && self != 'Local' && timestamp('2026-01-01T00:00:00Z').getHours(self) >= 0",message="write the name of a time zone, such as Asia/Shanghai"
	TimeZone string `json:"timeZone"`
	// DrainBefore is the time before the end in which nothing new is sold, and workers of a pool drain, such as 15m or
	// 1h30m; resources already sold stay until the end. It must be shorter than the window, and a window that never ends
	// takes none. It has no effect where another window continues. Set it to the run time of a typical batch pod. Default
	// 0s.
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="write hours, minutes and seconds, such as 15m or 1h30m"
	DrainBefore *metav1.Duration `json:"drainBefore,omitempty"`
}

// CPUSpec sets how far a node's CPU is filled, how its slack is sold, and how batch is suppressed. Percentages have at
// most one decimal.
// +kubebuilder:validation:XValidation:rule="has(self.ratio) == (has(self.method) && self.method == 'Static')",message="write ratio with method Static, and only there"
type CPUSpec struct {
	// Waterline is the part of the capacity up to which system, online and batch pods together fill the node, from 1%
	// to 100%. Default 65%.
	// +kubebuilder:validation:MaxLength=8
	// +kubebuilder:validation:XValidation:rule="self.matches('^(100([.]0)?|[1-9][0-9]?([.][0-9])?)%$')",message="write a percentage from 1% to 100%"
	// +kubebuilder:default="65%"
	Waterline string `json:"waterline,omitempty"`
	// Method is how the offer is found. Predicted (the default) sells what online pods are not expected to use: within
	// an hour for the tier batch, within a day for mid. Realtime sells what they do not use now. Static sells a fixed
	// part of the capacity, the ratio, whatever they use.
	// +kubebuilder:default=Predicted
	Method SellMethod `json:"method,omitempty"`
	// Ratio is the part of the capacity that method Static sells, from 0% to 1000%: 300% sells each CPU three times.
	// Required with method Static, and not allowed with another.
	// +kubebuilder:validation:MaxLength=8
	// +kubebuilder:validation:XValidation:rule="self.matches('^(1000([.]0)?|([1-9][0-9]{0,2}|0)([.][0-9])?)%$')",message="write a percentage from 0% to 1000%"
	Ratio string `json:"ratio,omitempty"`
	// Mid is the greatest part of the room under the waterline that may be offered as the tier mid, from 0% to 100%.
	// Mid is expected to stay for a day, and is for batch pods that take long to restart. Default 0%.
	// +kubebuilder:validation:MaxLength=8
	// +kubebuilder:validation:XValidation:rule="self.matches('^(100([.]0)?|[1-9]?[0-9]([.][0-9])?)%$')",message="write a percentage from 0% to 100%"
	// +kubebuilder:default="0%"
	Mid string `json:"mid,omitempty"`
	// Suppression is how it is found how much CPU batch may use. OnHarm (the default) lets batch use the whole machine
	// while no online pod waits longer for CPUs than without batch, and pushes it back within 300 ms when one does, to the
	// CPU that online pods leave under the waterline at the least. Where waiting cannot be measured, batch is limited to
	// that CPU. Arithmetic always limits it to that, each second. None does not limit batch. Nodes with eight CPUs or
	// more, or with several threads a core, limit batch to fewer CPUs, and below one core by CFS quotas too; others by
	// quotas alone.
	// +kubebuilder:default=OnHarm
	Suppression SuppressMethod `json:"suppression,omitempty"`
	// MinBatch is the part of the capacity that batch may always use, however much CPU online pods need, from 0% to
	// 100%. Even there online pods come first by weight. Raise it where batch jobs must make progress. Default 0%.
	// +kubebuilder:validation:MaxLength=8
	// +kubebuilder:validation:XValidation:rule="self.matches('^(100([.]0)?|[1-9]?[0-9]([.][0-9])?)%$')",message="write a percentage from 0% to 100%"
	// +kubebuilder:default="0%"
	MinBatch string `json:"minBatch,omitempty"`
	// BatchClass is how the kernel puts batch pods without a weight of their own behind other pods. Weight (the default)
	// gives them the weight of what they request. Idle sets cpu.idle: they run only when no other pod of the BestEffort
	// class wants to, and share the rest equally, whatever they request. GroupIdentity writes cpu.bvt_warp_ns, on kernels
	// that have it (Alibaba Cloud Linux, Anolis OS): 2 for online pods, -1 for such batch pods, which then run after them.
	// +kubebuilder:default=Weight
	BatchClass BatchClass `json:"batchClass,omitempty"`
}

// MemorySpec sets how far a node's memory is filled, and how its slack is sold. Percentages have at most one decimal.
// +kubebuilder:validation:XValidation:rule="has(self.ratio) == (has(self.method) && self.method == 'Static')",message="write ratio with method Static, and only there"
type MemorySpec struct {
	// Waterline is the part of the capacity up to which system, online and batch pods together fill the node, from 1%
	// to 100%. Default 80%.
	// +kubebuilder:validation:MaxLength=8
	// +kubebuilder:validation:XValidation:rule="self.matches('^(100([.]0)?|[1-9][0-9]?([.][0-9])?)%$')",message="write a percentage from 1% to 100%"
	// +kubebuilder:default="80%"
	Waterline string `json:"waterline,omitempty"`
	// Method is how the offer is found. Predicted (the default) sells what online pods are not expected to use: within
	// an hour for the tier batch, within a day for mid. Realtime sells what they do not use now. Static sells a fixed
	// part of the capacity, the ratio, whatever they use.
	// +kubebuilder:default=Predicted
	Method SellMethod `json:"method,omitempty"`
	// Ratio is the part of the capacity that method Static sells, from 0% to 100%: memory is never sold twice. Required
	// with method Static, and not allowed with another.
	// +kubebuilder:validation:MaxLength=8
	// +kubebuilder:validation:XValidation:rule="self.matches('^(100([.]0)?|[1-9]?[0-9]([.][0-9])?)%$')",message="write a percentage from 0% to 100%"
	Ratio string `json:"ratio,omitempty"`
	// Mid is the greatest part of the room under the waterline that may be offered as the tier mid, from 0% to 100%.
	// Mid is expected to stay for a day, and is for batch pods that take long to restart. Default 0%.
	// +kubebuilder:validation:MaxLength=8
	// +kubebuilder:validation:XValidation:rule="self.matches('^(100([.]0)?|[1-9]?[0-9]([.][0-9])?)%$')",message="write a percentage from 0% to 100%"
	// +kubebuilder:default="0%"
	Mid string `json:"mid,omitempty"`
}

// ProtectSpec sets what Waterline does for online pods besides suppressing batch.
type ProtectSpec struct {
	// Burst lets online pods exceed their CFS quota for moments, by the quota that they left unused before: by a tenth
	// at most over five minutes, and never while less than 5 % of the node is left under the waterline. Default: true
	// in a policy with cpu, else false.
	Burst *bool `json:"burst,omitempty"`
	// Memory makes the kernel reclaim batch memory before the memory that online pods request, and never reclaim what
	// pods of the classes LSE and LSR request. Before memory is short, batch pods stop growing and page cache is
	// reclaimed from them. It needs cgroup v2 and a kubelet without the feature gate MemoryQoS; elsewhere the
	// NodeReport lists NoMemoryProtection. With either cgroup version, batch containers that start through NRI are
	// killed first when memory runs out. Default false.
	Memory bool `json:"memory,omitempty"`
	// Interference finds the neighbour for which an online pod waits when its run-queue delay rises. Events and
	// waterline explain name that suspect. A suspect that is a batch pod is throttled on trial, and stays throttled
	// only if the online pod then waits less. On cgroup v1 the chart's value paths.proc must be set. Default false.
	Interference bool `json:"interference,omitempty"`
	// Eviction has batch pods evicted when nothing done on the node helps: when no memory is left for batch, or a batch
	// pod had hardly any of its CPU for five minutes. Pods are evicted one at a time, through the Eviction API. {}
	// takes every default. Without it no pod is evicted.
	Eviction *EvictionSpec `json:"eviction,omitempty"`
	// Services are figures of services that batch must not make worse, such as the 99th percentile of the time that a
	// request takes; at most 16 entries. With cpu.suppression OnHarm, batch gets less while a figure is above its max,
	// less than online pods leave under the waterline if need be. The first entry that selects a pod counts, and at most
	// 16 pods of a node. Figures are fetched only while batch runs. A figure that stays above its max although batch was
	// pushed back as far as possible is the service's own fault.
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	Services []ServiceSpec `json:"services,omitempty"`
}

// ServiceSpec is a figure of the pods that it selects, and what it may be. A pod must match both selectors.
// +kubebuilder:validation:XValidation:rule="has(self.metric) != has(self.prometheus)",message="write metric or prometheus, and only one of them"
type ServiceSpec struct {
	// Selector selects online pods by their labels; {} selects all.
	// +required
	Selector *LabelSelector `json:"selector"`
	// NamespaceSelector selects pods by the labels of their namespace. The label kubernetes.io/metadata.name selects a
	// namespace by name. Default: all namespaces.
	NamespaceSelector *LabelSelector `json:"namespaceSelector,omitempty"`
	// Metric has the agent read the figure from a port of the pod each second, in the text format of Prometheus.
	Metric *ServiceMetricSpec `json:"metric,omitempty"`
	// Prometheus has the agent query the figure from a Prometheus server every five seconds.
	Prometheus *ServiceQuerySpec `json:"prometheus,omitempty"`
	// Max is the highest value of the figure that is no harm, in the unit of the metric: a decimal above 0 with at most
	// 12 digits before the point and six after it, such as "0.020".
	// +kubebuilder:validation:MaxLength=19
	// +kubebuilder:validation:XValidation:rule="self.matches('^(0|[1-9][0-9]{0,11})([.][0-9]{1,6})?$') && self.matches('[1-9]')",message="write a decimal above 0, with at most six decimals, such as \"0.020\""
	// +required
	Max string `json:"max"`
}

// ServiceMetricSpec is a metric that the pod serves itself.
type ServiceMetricSpec struct {
	// Port is the port of the pod's IP address, from 1 to 65535.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`
	// Path is the path of the metrics. Default /metrics.
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.matches('^/[!$-~]*$')",message="write a path that begins with /, such as /metrics"
	// +kubebuilder:default=/metrics
	Path string `json:"path,omitempty"`
	// Name is the name of the metric. Of several series the highest value counts. With quantile, it is the name of a
	// histogram, without _bucket.
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-zA-Z_:][a-zA-Z0-9_:]*$')",message="write the name of a metric, such as http_request_duration_seconds"
	Name string `json:"name"`
	// Labels are labels that a series must have, with these values; at most 16. Default: all series count.
	// +kubebuilder:validation:MaxProperties=16
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.size() <= 128 && k.matches('^[a-zA-Z_][a-zA-Z0-9_]*$'))",message="write names of labels of a metric, such as handler"
	Labels map[string]MetricLabelValue `json:"labels,omitempty"`
	// Quantile is the quantile of a histogram, between 0 and 1, such as "0.99": of what was counted in the last ten
	// seconds. The buckets of all series are added up. Default: the metric itself is the figure.
	// +kubebuilder:validation:MaxLength=8
	// +kubebuilder:validation:XValidation:rule="self.matches('^0[.]0*[1-9][0-9]*$')",message="write a decimal between 0 and 1, such as \"0.99\""
	Quantile string `json:"quantile,omitempty"`
}

// MetricLabelValue is the value of a label of a metric.
// +kubebuilder:validation:MaxLength=256
type MetricLabelValue string

// ServiceQuerySpec is a query of a Prometheus server.
type ServiceQuerySpec struct {
	// URL is the address of the server, without /api/v1/query. Credentials are not supported.
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.matches('^https?://[^/?#@ ]+(/[^?#@ ]*)?$')",message="write an http or https URL without a query or credentials, such as http://prometheus.monitoring:9090"
	URL string `json:"url"`
	// Query is a PromQL query with one value as its result. $node, $namespace and $pod stand for the names of the node,
	// the pod's namespace and the pod.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Query string `json:"query"`
}

// EvictionSpec bounds evictions.
type EvictionSpec struct {
	// PerNodePerHour is the number of batch pods that may be evicted from one node in an hour, from 0 to 600. With 0
	// none is. Default 6.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=600
	// +kubebuilder:default=6
	PerNodePerHour *int32 `json:"perNodePerHour,omitempty"`
}

// WeightSpec bounds and extends the CPU weights that pods request.
type WeightSpec struct {
	// Scope is the range in which a weight counts. Node (the default) raises the Burstable class of weighted pods too, so
	// that their weight counts against every pod of the node. Class counts weights only among pods of the same QoS
	// class. Weights of BestEffort pods count among these in any case.
	// +kubebuilder:default=Node
	Scope WeightScope `json:"scope,omitempty"`
	// Quota is the CFS quota of weighted pods. Kubelet (the default) keeps the quota that follows from their limits.
	// Unlimited lifts it, so that the weight alone decides. The annotation waterline.io/cpu-quota on a pod takes
	// precedence.
	// +kubebuilder:default=Kubelet
	Quota WeightQuota `json:"quota,omitempty"`
	// Max is the highest weight that a pod may request, in shares, from 2 to 262144; 1024 shares weigh as much as a
	// request of one CPU. A pod that requests more gets this weight, and one event. Default: 1024 for each CPU of the
	// pod's CPU limit or request, whichever is higher. It does not bound the weights of podDefaults unless it is set.
	// +kubebuilder:validation:Minimum=2
	// +kubebuilder:validation:Maximum=262144
	Max *int64 `json:"max,omitempty"`
	// Namespaces replaces max for the pods of some namespaces; at most 64 entries. The first entry whose selector
	// matches the namespace counts.
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	Namespaces []NamespaceMaxSpec `json:"namespaces,omitempty"`
	// OverrideGuaranteed lets weights take CPU that other pods request, Guaranteed or not. Default false: Burstable pods
	// without a weight keep what they request beside weighted ones, and the burstable class never weighs more than the
	// allocatable CPU less the requests of Guaranteed pods.
	OverrideGuaranteed bool `json:"overrideGuaranteed,omitempty"`
}

// NamespaceMaxSpec is the highest weight for the pods of some namespaces.
type NamespaceMaxSpec struct {
	// Selector selects namespaces by their labels; {} selects all.
	// +required
	Selector *LabelSelector `json:"selector"`
	// Max is the highest weight of a pod in these namespaces, in shares, from 2 to 262144.
	// +kubebuilder:validation:Minimum=2
	// +kubebuilder:validation:Maximum=262144
	Max int64 `json:"max"`
}

// PrivilegeSpec allows the pods of some namespaces what could harm others.
type PrivilegeSpec struct {
	// NamespaceSelector selects namespaces by their labels; {} selects all. The label kubernetes.io/metadata.name selects
	// a namespace by name.
	// +required
	NamespaceSelector *LabelSelector `json:"namespaceSelector"`
	// Allow lists what the pods may request. UnlimitedQuota: the annotation waterline.io/cpu-quota with unlimited, which
	// lifts their CPU limits. ShareCPUs, ExclusiveCPUs: waterline.io/cpu-manager with share, exclusive. LSE, LSR, SYSTEM:
	// the label waterline.io/qos with that class; LSE and LSR bring their CPUs along. NeverEvict: waterline.io/evict with
	// never. StaticPod: mirror pods there count as static pods of their node, with weights and CPUs of their own.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	Allow []PrivilegeName `json:"allow"`
}

// PrivilegeName names something that pods may request.
// +kubebuilder:validation:Enum=UnlimitedQuota;ShareCPUs;ExclusiveCPUs;LSE;LSR;SYSTEM;NeverEvict;StaticPod
type PrivilegeName string

// BatchPodsSpec selects pods to be admitted as batch. A pod must match both selectors.
type BatchPodsSpec struct {
	// Selector selects pods by their labels; {} selects all.
	// +required
	Selector *LabelSelector `json:"selector"`
	// NamespaceSelector selects pods by the labels of their namespace, among the namespaces labelled
	// waterline.io/colocation=enabled. The label kubernetes.io/metadata.name selects a namespace by name. Default: all
	// of them.
	NamespaceSelector *LabelSelector `json:"namespaceSelector,omitempty"`
	// Owners is the part of owners (Deployments, CronJobs, …) whose pods become batch, a whole percentage from 0% to 100%.
	// Each owner has a fixed place, so an owner that is in stays in, with all its pods, when the part grows. An owner that
	// is not in counts as not selected. Default 100%.
	// +kubebuilder:validation:MaxLength=4
	// +kubebuilder:validation:XValidation:rule="self.matches('^(100|[1-9]?[0-9])%$')",message="write a whole percentage from 0% to 100%"
	// +kubebuilder:default="100%"
	Owners string `json:"owners,omitempty"`
	// Tier is the resource tier that the pods request, Batch (the default) or Mid. A pod whose priority is that of a
	// tier (mid -199 to -100 or 7000 to 7999, batch -1000 or less or 5000 to 5999) requests that tier instead.
	// +kubebuilder:default=Batch
	Tier Tier `json:"tier,omitempty"`
}

// PodDefaultsSpec gives the pods that it selects what annotations would give them. A pod must match both selectors.
// +kubebuilder:validation:XValidation:rule="has(self.cpuShare) || has(self.cpuManager)",message="a rule needs an effect: write cpuShare or cpuManager"
// +kubebuilder:validation:XValidation:rule="!has(self.cpuPlacement) || has(self.cpuManager)",message="cpuPlacement needs cpuManager: write it as well"
type PodDefaultsSpec struct {
	// Selector selects pods by their labels; {} selects all.
	// +required
	Selector *LabelSelector `json:"selector"`
	// NamespaceSelector selects pods by the labels of their namespace. The label kubernetes.io/metadata.name selects a
	// namespace by name. It selects no pod while the agent does not know the namespace's labels, as in an agent without
	// a cluster. Default: all namespaces.
	NamespaceSelector *LabelSelector `json:"namespaceSelector,omitempty"`
	// CPUShare is the weight of each pod, in shares, from 2 to 262144, as in the annotation waterline.io/cpu-share;
	// 1024 shares weigh as much as a request of one CPU.
	// +kubebuilder:validation:Minimum=2
	// +kubebuilder:validation:Maximum=262144
	CPUShare *int64 `json:"cpuShare,omitempty"`
	// CPUManager sets the CPUs on which the pods may run, as the annotation waterline.io/cpu-manager does. Exclusive:
	// CPUs of their own, as many as their CPU limit. Share: as many, which other pods may use too. None: all CPUs that
	// no pod has exclusively.
	CPUManager CPUManagerMode `json:"cpuManager,omitempty"`
	// CPUPlacement is how these CPUs are chosen, as in the annotation waterline.io/cpu-placement. Packed (the default):
	// few physical cores. Spread: many physical cores. PhysicalCores: whole physical cores. It needs cpuManager.
	CPUPlacement CPUPlacement `json:"cpuPlacement,omitempty"`
}

// ColocationPolicyStatus is the outcome of a policy in the cluster. The manager writes it.
type ColocationPolicyStatus struct {
	// ObservedGeneration is the generation of the policy that this status describes.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Nodes counts the nodes that the policy selects, and what becomes of it there.
	Nodes NodeCounts `json:"nodes,omitempty"`
	// SlippedPods is the number of batch pods on governed nodes that request no batch resources, because the webhook
	// did not see them. The scheduler counts them as online pods. Delete them to have them created anew.
	SlippedPods int32 `json:"slippedPods,omitempty"`
	// Conditions are Ready and Overlaps. Ready is True when all governed nodes that have a NodeReport follow the policy as
	// it is now. Overlaps is True when another policy selects some of the same nodes.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NodeCounts counts the nodes of a policy. Each count is a part of the one before.
type NodeCounts struct {
	// Selected is the number of nodes that match the node selector.
	Selected int32 `json:"selected"`
	// Governed is the number of selected nodes that the policy governs. The others are not rolled out yet, have a policy
	// of higher rank, or opted out.
	Governed int32 `json:"governed"`
	// Enforcing is the number of governed nodes whose agent reported that it enforces the policy as it is now.
	Enforcing int32 `json:"enforcing"`
	// Offering is the number of enforcing nodes that have something to sell now.
	Offering int32 `json:"offering"`
}

// Conditions of a [ColocationPolicy].
const (
	// ConditionReady is True when all governed nodes that have a NodeReport follow the policy as it is now.
	ConditionReady = "Ready"
	// ConditionOverlaps is True when another policy selects some of the same nodes. The message names the other policy,
	// and which of the two governs the nodes.
	ConditionOverlaps = "Overlaps"
)
