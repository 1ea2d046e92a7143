package v1alpha1

// Group is the API group of everything of ours.
const Group = "waterline.io"

// Version is the version of the API group in this package, and GroupVersion the apiVersion of its documents.
const (
	Version      = "v1alpha1"
	GroupVersion = Group + "/" + Version
)

// Namespace is where Waterline's own workloads run.
const Namespace = "waterline-system"

// Annotations on pods. Where a pod carries both spellings, ours wins and an event says so.
const (
	// AnnotationCPUShare is how much CPU a pod should win while CPU is short, in shares: an integer from 2 to 262144,
	// where 1024 is what a request of one CPU weighs.
	AnnotationCPUShare = "waterline.io/cpu-share"
	// AnnotationCPUShareAlias is the spelling of cpu-share-syncer.
	AnnotationCPUShareAlias = "iqiyi.com/cpu-share"
	// AnnotationCPUQuota is "unlimited" to lift the pod's CFS quota, so that its weight alone limits it, or "kubelet" to
	// keep what its limits say even if the policy lifts quotas.
	AnnotationCPUQuota = "waterline.io/cpu-quota"
	// AnnotationCPUManager is which CPUs a pod may run on: "exclusive" for CPUs of its own, as many as its CPU limit says,
	// "share" for as many that others may use too, "none" for all that are nobody's alone.
	AnnotationCPUManager = "waterline.io/cpu-manager"
	// AnnotationCPUManagerAlias is the spelling of Crane.
	AnnotationCPUManagerAlias = "qos.gocrane.io/cpu-manager"
	// AnnotationCPUPlacement is how the CPUs of such a pod are chosen: "packed" on few physical cores, "spread" over many,
	// "pcpu-only" in whole physical cores.
	AnnotationCPUPlacement = "waterline.io/cpu-placement"
	// AnnotationCPUMemory is "local" to take the memory of such a pod from the NUMA nodes of its CPUs only. It counts when
	// a container starts.
	AnnotationCPUMemory = "waterline.io/cpu-memory"
	// AnnotationEvict is "never" for a batch pod that must not be evicted, whatever happens, or "first" for one that goes
	// before others. A value that is neither keeps the pod.
	AnnotationEvict = "waterline.io/evict"
)

// LabelQoS says what a pod is for: "LSE", "LSR" and "LS" are online services, of which the first has CPUs of its own
// and the second home CPUs unless its annotations say otherwise; "BE" is batch; "SYSTEM" is a daemon of the node. A pod
// without it is LS.
const (
	LabelQoS = "waterline.io/qos"
	// LabelQoSAlias is the spelling of Koordinator.
	LabelQoSAlias = "koordinator.sh/qosClass"
)

// LabelPool says of which worker pool a batch pod is a worker. The agent writes down for such a pod what it may use
// now, see docs/files.md.
const LabelPool = "waterline.io/pool"

// LabelOptOut on a node keeps Waterline off it, whatever policies say: what was written there is given back, and then
// nothing is touched. Any value counts but "false".
const LabelOptOut = "waterline.io/opt-out"

// Resources that batch pods ask for: CPU in milli-cores, memory in bytes, both whole numbers with request and limit
// equal. What is sold as mid is expected to be there for a day, what is sold as batch for an hour.
const (
	ResourceBatchCPU    = "waterline.io/batch-cpu"
	ResourceBatchMemory = "waterline.io/batch-memory"
	ResourceMidCPU      = "waterline.io/mid-cpu"
	ResourceMidMemory   = "waterline.io/mid-memory"
)

// SlackResource returns the name of a resource of the tier mid or batch, as above, or under the name that Koordinator
// gives it.
func SlackResource(tier string, memory, koordinator bool) string {
	name := Group + "/" + tier
	if koordinator {
		name = "kubernetes.io/" + tier
	}
	if memory {
		return name + "-memory"
	}
	return name + "-cpu"
}

// Priorities of pods, of which Koordinator has bands of 1000: a batch pod in the band of mid runs on what is sold as
// mid.
const (
	PriorityProd  = 9000
	PriorityMid   = 7000
	PriorityBatch = 5000
	PriorityBand  = 1000
)

// ConditionCPUSet is the condition of a pod that asks for CPUs of its own: True with the CPUs it has, or False with the
// reason why it has none.
const ConditionCPUSet = "waterline.io/CPUSet"

// LabelExperiment is on the namespace that an experiment on a cluster makes, and on its pods: the experiment's name. A
// policy can select such namespaces by it.
const LabelExperiment = "waterline.io/experiment"

// Metric names. Units are base units; there are no labels per pod.
const (
	MetricPods         = "waterline_pods"          // {qos}
	MetricWeightedPods = "waterline_weighted_pods" // pods with a weight of their own
	// {pool} CPUs, while a pod asks for some of its own
	MetricCPUs       = "waterline_cpus"
	MetricOwnedFiles = "waterline_owned_files" // cgroup files on the undo record
	// {reason} files of the plan that are not written now
	MetricDeferredFiles  = "waterline_deferred_files"
	MetricWrites         = "waterline_writes_total"                // {file}
	MetricRepairs        = "waterline_repairs_total"               // {file} writes that answered another writer
	MetricRejected       = "waterline_rejected_writes_total"       // {file,errno}
	MetricBadAnnotations = "waterline_bad_annotations_total"       // {key}
	MetricReclaimAsked   = "waterline_reclaim_asked_bytes_total"   // of batch pods, before memory is short
	MetricReclaimFreed   = "waterline_reclaim_freed_bytes_total"   // what came of it
	MetricRounds         = "waterline_rounds_total"                // rounds of decisions
	MetricAudits         = "waterline_audits_total"                // complete comparisons of plan and kernel
	MetricRoundSeconds   = "waterline_last_round_duration_seconds" // from observation to the last write
	MetricErrors         = "waterline_errors_total"                // {what}
	MetricPodsKnown      = "waterline_pods_known"                  // 1 once the API's pods were listed
	// 0 while files must be polled for lack of inotify watches
	MetricWatching          = "waterline_watching"
	MetricNRIConnected      = "waterline_nri_connected"              // 1 while the container runtime asks us
	MetricNRIRequests       = "waterline_nri_requests_total"         // requests of the container runtime
	MetricNRISlow           = "waterline_nri_slow_answers_total"     // of them, answered after more than 5 ms
	MetricNRISlowest        = "waterline_nri_slowest_answer_seconds" // since the agent started
	MetricBatchCPUAvailable = "waterline_batch_cpu_available_cores"  // {window} the allowance
	// {window} what batch was promised and may not use
	MetricBatchCPUSuppressed   = "waterline_batch_cpu_suppressed_cores"
	MetricBatchMemoryAvailable = "waterline_batch_memory_available_bytes" // {window}
	MetricCPUUsed              = "waterline_cpu_used_cores"               // {class,window}
	MetricCPUStolen            = "waterline_cpu_stolen_cores"             // {window}
	MetricMemoryUsed           = "waterline_memory_used_bytes"            // {class,window} working set
	MetricPressure             = "waterline_pressure_ratio"               // {group,resource,tasks,window}
	MetricRunnable             = "waterline_runnable_tasks"               // {window}
	// {batch} pods that online pods were said to wait for
	MetricInterferenceSuspects  = "waterline_interference_suspects_total"
	MetricInterferenceTrials    = "waterline_interference_trials_total"   // {outcome} of throttling them
	MetricInterferenceThrottled = "waterline_interference_throttled_pods" // batch pods, now
	// {reason} 1 while the node sells nothing for it
	MetricHot              = "waterline_hot"
	MetricEvictionRequests = "waterline_eviction_requests_total"       // {reason} pods that were asked to leave
	MetricEvictionExpected = "waterline_eviction_expected_bytes_total" // memory that those that left were to free
	MetricEvictionObserved = "waterline_eviction_observed_bytes_total" // that was free then
	MetricThrottled        = "waterline_throttled_periods_ratio"       // {window} of online pods
	MetricCPUCapacity      = "waterline_cpu_capacity_cores"
	MetricMemoryCapacity   = "waterline_memory_capacity_bytes"
	MetricCPUCeiling       = "waterline_cpu_ceiling_cores" // capacity × waterline
	MetricMemoryCeiling    = "waterline_memory_ceiling_bytes"
	MetricCPUOffer         = "waterline_cpu_offer_cores" // {tier}
	MetricMemoryOffer      = "waterline_memory_offer_bytes"
	MetricCPURoom          = "waterline_cpu_room_cores" // {tier} what could be sold now
	MetricMemoryRoom       = "waterline_memory_room_bytes"
	MetricCPUBound         = "waterline_cpu_bound_cores" // {tier} requested by this node's pods
	MetricMemoryBound      = "waterline_memory_bound_bytes"
	MetricCPUPeak          = "waterline_cpu_predicted_peak_cores" // {horizon}
	MetricMemoryPeak       = "waterline_memory_predicted_peak_bytes"
	MetricPredictionKnown  = "waterline_prediction_known"        // {resource,horizon}
	MetricPredictionMissed = "waterline_prediction_missed_ratio" // {resource,horizon} of its own past
	MetricMeasurementAge   = "waterline_measurement_age_seconds" // {resource}
	MetricLeading          = "waterline_manager_leading"         // 1 while this replica decides
	MetricFresh            = "waterline_manager_fresh"           // 1 while what is known of the API is up to date
	MetricNodes            = "waterline_nodes"                   // {state} as the manager sees them
	// 1 while so many agents look dead that it doubts itself
	MetricBraked      = "waterline_manager_braked"
	MetricActions     = "waterline_manager_actions_total"   // {verb,outcome} about nodes
	MetricEvictions   = "waterline_manager_evictions_total" // {outcome} of pods that nodes asked for
	MetricSlippedPods = "waterline_slipped_pods"            // batch pods that do not ask for batch resources
	MetricAdmissions  = "waterline_admissions_total"        // {why} pods that the webhook looked at
	MetricBuildInfo   = "waterline_build_info"              // {version}
)
