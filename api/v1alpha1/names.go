package v1alpha1

// Group is the API group of every kind, label, annotation and resource of Waterline.
const Group = "waterline.io"

// Version is the version of the API group in this package, and GroupVersion the apiVersion of its documents.
const (
	Version      = "v1alpha1"
	GroupVersion = Group + "/" + Version
)

// Namespace is the namespace of Waterline's own workloads.
const Namespace = "waterline-system"

// Annotations on pods. Where a pod has both spellings of an annotation, ours is used, and an event reports the other.
const (
	// AnnotationCPUShare is the CPU weight of a pod while CPU is short, in shares: an integer from 2 to 262144. 1024
	// shares weigh as much as a request of one CPU.
	AnnotationCPUShare = "waterline.io/cpu-share"
	// AnnotationCPUShareAlias is the spelling of cpu-share-syncer.
	AnnotationCPUShareAlias = "iqiyi.com/cpu-share"
	// AnnotationCPUQuota is the CFS quota of a pod: "unlimited" lifts it, so that the weight alone limits the pod;
	// "kubelet" keeps the quota that follows from its limits, even if the policy lifts quotas.
	AnnotationCPUQuota = "waterline.io/cpu-quota"
	// AnnotationCPUManager sets the CPUs on which a pod may run: "exclusive" gives it CPUs of its own, as many as its
	// CPU limit; "share" gives it as many, which other pods may use too; "none" lets it run on all CPUs that no pod has
	// exclusively.
	AnnotationCPUManager = "waterline.io/cpu-manager"
	// AnnotationCPUManagerAlias is the spelling of Crane.
	AnnotationCPUManagerAlias = "qos.gocrane.io/cpu-manager"
	// AnnotationCPUPlacement is how the CPUs of such a pod are chosen: "packed" on few physical cores, "spread" over
	// many, "pcpu-only" in whole physical cores.
	AnnotationCPUPlacement = "waterline.io/cpu-placement"
	// AnnotationCPUSetHint is the CPUs that such a pod should get, as a list of the node's CPUs such as "4-7". The
	// scheduler of Waterline writes it when it binds the pod. The agent takes exactly these CPUs if all of them are free
	// and fit the pod's request; otherwise it chooses as without the hint, and an event says why. Whoever writes it can
	// choose among free CPUs only.
	AnnotationCPUSetHint = "waterline.io/cpuset-hint"
	// AnnotationCPUMemory is "local" to take the memory of such a pod from the NUMA nodes of its CPUs only. It is read
	// when a container starts.
	AnnotationCPUMemory = "waterline.io/cpu-memory"
	// AnnotationEvict is "never" for a batch pod that must not be evicted, and "first" for a batch pod that is evicted
	// before others. Any other value keeps the pod.
	AnnotationEvict = "waterline.io/evict"
)

// LabelQoS is the class of a pod. "LSE", "LSR" and "LS" are online services: an LSE pod has CPUs of its own, and an LSR
// pod home CPUs, unless its annotations say otherwise. "BE" is batch. "SYSTEM" is a daemon of the node. A pod without
// the label is LS.
const (
	LabelQoS = "waterline.io/qos"
	// LabelQoSAlias is the spelling of Koordinator.
	LabelQoSAlias = "koordinator.sh/qosClass"
)

// LabelPool names the worker pool of a batch pod. It counts only on a pod that its WorkerPool controls. The agent
// writes the present allowance of such a pod into a file, see docs/files.md.
const LabelPool = "waterline.io/pool"

// LabelPoolBusy on the pod of a worker is "false" after the worker has run nothing for a minute, and "true" otherwise.
// The pool's PodDisruptionBudget covers the others only.
const LabelPoolBusy = "waterline.io/pool-busy"

// LabelOptOut on a node keeps Waterline off it, whatever policies say: settings written there are restored, and then
// nothing is written. A pool of nodes can be made with it; on a node that runs, AnnotationPause does the same. Every
// value counts but "false".
const LabelOptOut = "waterline.io/opt-out"

// AnnotationPause on a policy or on a Node stops Waterline there, whatever the mode is: all settings are restored,
// nothing new is sold, and workers of pools drain. Batch pods that are bound stay. New ones wait where a policy is
// paused. Every value counts but "false".
const AnnotationPause = "waterline.io/pause"

// LabelNamespace on a policy names the namespace of the agents and the manager. The chart writes it on its policies,
// and the CLI finds agents and manager by it.
const LabelNamespace = "waterline.io/namespace"

// AnnotationPublished on a Node lists the resources under Koordinator's names that Waterline put there, with their
// amounts: kubernetes.io/batch-cpu=3000,kubernetes.io/batch-memory=1048576. It is written together with them. A
// resource that it does not list, or with another amount, belongs to another system, and Waterline never touches it.
const AnnotationPublished = "waterline.io/published"

// Resources that batch pods request: CPU in milli-cores, memory in bytes, both whole numbers with request and limit
// equal. Mid is expected to be there for a day, batch for an hour.
const (
	ResourceBatchCPU    = "waterline.io/batch-cpu"
	ResourceBatchMemory = "waterline.io/batch-memory"
	ResourceMidCPU      = "waterline.io/mid-cpu"
	ResourceMidMemory   = "waterline.io/mid-memory"
)

// SlackResource returns the name of a resource of the tier mid or batch: ours, as above, or Koordinator's.
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

// Priorities of pods: the values of the chart's PriorityClasses. Batch is below 0, the priority of online pods without
// a class, and mid and batch are below -10, the default of the cluster autoscaler's --expendable-pods-priority-cutoff:
// it adds no node for them. It ignores the PodDisruptionBudgets of pods below, so workers of pools are above.
const (
	PriorityProd   = 9000
	PriorityOnline = 8000 // no rule of a policy makes a pod batch that has this priority or a higher one
	PriorityWorker = -5
	PriorityMid    = -100
	PriorityBatch  = -1000

	// PriorityMidBand is the number of priorities, from PriorityMid down, whose batch pods are of the tier mid.
	PriorityMidBand = 100
)

// Koordinator's bands of priorities of batch pods: the lowest priority of each, and the number of priorities.
const (
	PriorityKoordinatorMid   = 7000
	PriorityKoordinatorBatch = 5000
	PriorityKoordinatorBand  = 1000
)

// ConditionCPUSet is the condition of a pod that requests CPUs of its own: True with the CPUs that it has, or False
// with the reason why it has none.
const ConditionCPUSet = "waterline.io/CPUSet"

// LabelExperiment is on the namespace of an experiment on a cluster and on its pods. Its value is the experiment's
// name. A policy can select such namespaces by it.
const LabelExperiment = "waterline.io/experiment"

// Metric names, with their labels. Units are base units; there are no labels per pod. docs/metrics.md explains each.
const (
	MetricPods                  = "waterline_pods"                          // {qos}
	MetricWeightedPods          = "waterline_weighted_pods"                 // pods with a weight of their own
	MetricCPUs                  = "waterline_cpus"                          // {pool} while a pod requests CPUs of its own
	MetricOwnedFiles            = "waterline_owned_files"                   // cgroup files on the undo record
	MetricDeferredFiles         = "waterline_deferred_files"                // {reason} planned, and not written now
	MetricWrites                = "waterline_writes_total"                  // {file}
	MetricRepairs               = "waterline_repairs_total"                 // {file} writes that answered another writer
	MetricRejected              = "waterline_rejected_writes_total"         // {file,errno}
	MetricBadAnnotations        = "waterline_bad_annotations_total"         // {key}
	MetricReclaimRequested      = "waterline_reclaim_requested_bytes_total" // from batch pods, before memory is short
	MetricReclaimFreed          = "waterline_reclaim_freed_bytes_total"     // of that, freed
	MetricRounds                = "waterline_rounds_total"                  // rounds of decisions
	MetricAudits                = "waterline_audits_total"                  // complete comparisons of plan and kernel
	MetricRoundSeconds          = "waterline_last_round_duration_seconds"   // from observation to the last write
	MetricErrors                = "waterline_errors_total"                  // {operation}
	MetricPodsKnown             = "waterline_pods_known"                    // 1 once the API's pods were listed
	MetricWatching              = "waterline_watching"                      // 0 while files are polled
	MetricNRIConnected          = "waterline_nri_connected"                 // 1 while connected to the container runtime
	MetricNRIRequests           = "waterline_nri_requests_total"            // requests of the container runtime
	MetricNRISlow               = "waterline_nri_slow_answers_total"        // of them, answered after more than 5 ms
	MetricNRILate               = "waterline_nri_late_starts_total"         // batch containers that started without limits
	MetricNRISlowest            = "waterline_nri_slowest_answer_seconds"    // since the agent started
	MetricBatchCPUAvailable     = "waterline_batch_cpu_available_cores"     // {window} the allowance
	MetricBatchCPUSuppressed    = "waterline_batch_cpu_suppressed_cores"    // {window} requested, and not allowed now
	MetricOnlineCPULacking      = "waterline_online_cpu_lacking_cores"      // {window} that online pods wait for
	MetricSampledPods           = "waterline_sampled_pods"                  // {tasks} online pods whose waits are sampled
	MetricBatchMemoryAvailable  = "waterline_batch_memory_available_bytes"  // {window}
	MetricCPUUsed               = "waterline_cpu_used_cores"                // {class,window}
	MetricCPUStolen             = "waterline_cpu_stolen_cores"              // {window}
	MetricMemoryUsed            = "waterline_memory_used_bytes"             // {class,window} working set
	MetricPressure              = "waterline_pressure_ratio"                // {group,resource,tasks,window}
	MetricRunnable              = "waterline_runnable_tasks"                // {window}
	MetricInterferenceSuspects  = "waterline_interference_suspects_total"   // {batch} pods, by whether they are batch
	MetricInterferenceTrials    = "waterline_interference_trials_total"     // {outcome} of throttling them
	MetricInterferenceThrottled = "waterline_interference_throttled_pods"   // batch pods, now
	MetricHot                   = "waterline_hot"                           // {reason} 1 while nothing is sold for it
	MetricEvictionRequests      = "waterline_eviction_requests_total"       // {reason} pods that should leave
	MetricEvictionExpected      = "waterline_eviction_expected_bytes_total" // memory that evicted pods were to free
	MetricEvictionObserved      = "waterline_eviction_observed_bytes_total" // memory that was free then
	MetricThrottled             = "waterline_throttled_periods_ratio"       // {window} of online pods
	MetricCPUCapacity           = "waterline_cpu_capacity_cores"
	MetricMemoryCapacity        = "waterline_memory_capacity_bytes"
	MetricCPUCeiling            = "waterline_cpu_ceiling_cores" // capacity × waterline
	MetricMemoryCeiling         = "waterline_memory_ceiling_bytes"
	MetricCPUOffer              = "waterline_cpu_offer_cores" // {tier}
	MetricMemoryOffer           = "waterline_memory_offer_bytes"
	MetricCPURoom               = "waterline_cpu_room_cores" // {tier} what could be sold now
	MetricMemoryRoom            = "waterline_memory_room_bytes"
	MetricCPUBound              = "waterline_cpu_bound_cores" // {tier} requested by this node's pods
	MetricMemoryBound           = "waterline_memory_bound_bytes"
	MetricCPUPeak               = "waterline_cpu_predicted_peak_cores" // {horizon}
	MetricMemoryPeak            = "waterline_memory_predicted_peak_bytes"
	MetricPredictionKnown       = "waterline_prediction_known"             // {resource,horizon}
	MetricPredictionMissed      = "waterline_prediction_missed_ratio"      // {resource,horizon} of its own past
	MetricMeasurementAge        = "waterline_measurement_age_seconds"      // {resource}
	MetricLeading               = "waterline_manager_leading"              // 1 while this replica decides
	MetricFresh                 = "waterline_manager_fresh"                // 1 while its view of the API is up to date
	MetricNodes                 = "waterline_nodes"                        // {state} as the manager sees them
	MetricBraked                = "waterline_manager_braked"               // 1 while withdrawals are limited
	MetricActions               = "waterline_manager_actions_total"        // {verb,outcome} on nodes
	MetricEvictions             = "waterline_manager_evictions_total"      // {outcome} of requests of nodes
	MetricSlippedPods           = "waterline_slipped_pods"                 // batch pods that request no batch resources
	MetricNodeWithdrawn         = "waterline_node_withdrawn"               // {node} 1 while its offer is withdrawn
	MetricBatchCPURequested     = "waterline_batch_cpu_requested_cores"    // {namespace,owner} by pods on nodes
	MetricBatchMemoryRequested  = "waterline_batch_memory_requested_bytes" // {namespace,owner}
	MetricAdmissions            = "waterline_admissions_total"             // {reason} pods that the webhook reviewed
	MetricPoolWorkers           = "waterline_pool_workers"                 // {namespace,pool,phase}
	MetricPoolMemory            = "waterline_pool_memory_bytes"            // {namespace,pool,amount} offered or used
	MetricPoolVCores            = "waterline_pool_vcores"                  // {namespace,pool,amount}
	MetricPoolContainers        = "waterline_pool_containers"              // {namespace,pool}
	MetricPoolRM                = "waterline_pool_rm_up"                   // {namespace,pool} 1 while it answers
	MetricPoolRequests          = "waterline_pool_rm_requests_total"       // {namespace,pool}
	MetricPoolSteps             = "waterline_pool_steps_total"             // {namespace,pool,verb,outcome}
	MetricBuildInfo             = "waterline_build_info"                   // {version}

	// Of the scheduler.
	MetricSchedulerNodes    = "waterline_scheduler_nodes"          // {report} Trusted, or why it does not count
	MetricSchedulerAssumed  = "waterline_scheduler_assumed_pods"   // that reports do not include yet
	MetricSchedulerRefusals = "waterline_scheduler_refusals_total" // {plugin,reason} of nodes for pods
	MetricSchedulerWoken    = "waterline_scheduler_woken_total"    // refused pods that were tried again
)
