package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// WorkerPoolStatus is the state of a pool. Phases and reasons are single words, which docs/yarn.md and docs/olap.md
// explain.
type WorkerPoolStatus struct {
	// ObservedGeneration is the generation of the spec that the manager follows.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Replicas is the number of pods of workers, for kubectl scale.
	Replicas int32 `json:"replicas"`
	// Selector selects the pods of workers by their labels, for kubectl scale.
	Selector string `json:"selector,omitempty"`
	// Wanted is the number of workers that are to run now.
	Wanted int32 `json:"wanted"`
	// Active is the number of workers that take containers.
	Active int32 `json:"active"`
	// Leaving is the number of workers that drain or stop.
	Leaving int32 `json:"leaving"`
	// Total is what the workers offer together.
	Total YARNResources `json:"total,omitempty"`
	// Used is what containers on the workers use of that.
	Used YARNResources `json:"used,omitempty"`
	// Containers is the number of containers on the workers.
	Containers int32 `json:"containers"`
	// Next is when the windows next change what is to run. It is empty while nothing changes within three days.
	Next *metav1.Time `json:"next,omitempty"`
	// ResourceManager is the active one.
	ResourceManager *ResourceManagerStatus `json:"resourceManager,omitempty"`
	// ValidSpec is the last spec that could be used, as JSON. After an edit to one that cannot, the pool goes on by it:
	// its workers are resized and drained, none grows, and no pod is made, until somebody corrects the spec. One of more
	// than 256 KiB is not kept.
	ValidSpec string `json:"validSpec,omitempty"`
	// Reports is the number of ConfigMaps NAME-report-0, NAME-report-1, … in which the key workers.json has the state of
	// each worker. A pool of at most 20 workers has none. waterline explain pool reads them.
	Reports int32 `json:"reports,omitempty"`
	// Workers is the state of each worker, ordered by name. Workers that never ran are left out. Of more than 20 workers,
	// it has the 20 that need attention most: not those that are active, or are not to run.
	// +kubebuilder:validation:MaxItems=20
	// +listType=map
	// +listMapKey=name
	Workers []WorkerStatus `json:"workers,omitempty"`
	// Conditions are Ready and, while something is wrong, others that name the cause and the fix.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// YARNResources is an amount as YARN counts.
type YARNResources struct {
	// Memory is an amount of memory.
	Memory resource.Quantity `json:"memory"`
	// VCores is a number of vcores.
	VCores int64 `json:"vcores"`
}

// ResourceManagerStatus is the active ResourceManager.
type ResourceManagerStatus struct {
	// Address is its base address.
	Address string `json:"address"`
	// Version of Hadoop.
	// +kubebuilder:validation:MaxLength=64
	Version string `json:"version,omitempty"`
	// Started is when its process started.
	Started metav1.Time `json:"started"`
	// Since is when the manager first saw it active.
	Since metav1.Time `json:"since"`
}

// WorkerPhase is where a worker is in its life. docs/yarn.md and docs/olap.md explain each.
// +kubebuilder:validation:Enum=Terminated;Provisioning;Registering;Labelled;Active;Shrinking;Draining;Decommissioned;Stopped;Lost;Frozen;Quarantined
type WorkerPhase string

// WorkerStatus is the state of one worker.
type WorkerStatus struct {
	// Name of the worker and of its pod.
	Name string `json:"name"`
	// Node of its pod, or on which its pod is to run.
	Node string `json:"node,omitempty"`
	// Pod is the UID of its pod. It is empty while there is none.
	Pod string `json:"pod,omitempty"`
	// Phase is where it is in its life, such as Active or Draining.
	Phase WorkerPhase `json:"phase"`
	// Reason is why, such as ContainersRunning.
	Reason string `json:"reason,omitempty"`
	// Message is what a person should know besides.
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
	// Since is when the phase began.
	Since metav1.Time `json:"since"`
	// Total is what it offers.
	Total *YARNResources `json:"total,omitempty"`
	// Containers is the number of its containers.
	Containers int32 `json:"containers,omitempty"`
	// Until is when it will have stopped, if it is to stop by a time.
	Until *metav1.Time `json:"until,omitempty"`
	// Ended is when its last pod ended.
	Ended *metav1.Time `json:"ended,omitempty"`
	// Attempts is how many of its pods in a row failed: they did not register, or were unhealthy. A change of the spec, a
	// new window and an hour of work set it to 0.
	Attempts int32 `json:"attempts,omitempty"`
}

// Conditions of a [WorkerPool] besides [ConditionReady]. All are absent or False while things are well.
const (
	// ConditionRMUnreachable is True while no active ResourceManager answers.
	ConditionRMUnreachable = "ResourceManagerUnreachable"
	// ConditionCoordinatorUnreachable is True while the coordinator of a cluster of Trino or Impala does not answer.
	ConditionCoordinatorUnreachable = "CoordinatorUnreachable"
	// ConditionDrainRefused is True while the engine refuses to drain workers of Trino or Impala.
	ConditionDrainRefused = "DrainRefused"
	// ConditionLabelRefused is True while the ResourceManager's label store lacks the label, or does not take it.
	ConditionLabelRefused = "LabelRefused"
	// ConditionExcludeFailed is True while the exclude file cannot be written, or is not read.
	ConditionExcludeFailed = "ExcludeFileFailed"
	// ConditionNMUnreachable is True while NodeManagers do not say which containers run.
	ConditionNMUnreachable = "NodeManagersUnreachable"
	// ConditionDemandUnknown is True while the ResourceManager does not say what applications wait for, and the pool is to
	// follow that.
	ConditionDemandUnknown = "DemandUnknown"
	// ConditionPodsRefused is True while no pod of a worker is made, because it would not be safe.
	ConditionPodsRefused = "PodsRefused"
	// ConditionStepsFailed is True while steps of workers fail.
	ConditionStepsFailed = "StepsFailed"
	// ConditionQuarantined is True while workers are given up for a while.
	ConditionQuarantined = "WorkersQuarantined"
)
