package v1alpha1

// LabelColocation on a namespace, with the value ColocationEnabled, allows policies to make batch pods of its pods.
const (
	LabelColocation   = "waterline.io/colocation"
	ColocationEnabled = "enabled"
)

// Koordinator's names of the resources that are sold. Where Waterline publishes them it does not publish ours: one
// slack is sold once. Where another system publishes them on the same Node, both stand there, and each sells its own
// account. A pod that names one of them keeps to them. On a Node they belong to Waterline only as
// [AnnotationPublished] says.
const (
	ResourceKoordinatorBatchCPU    = "kubernetes.io/batch-cpu"
	ResourceKoordinatorBatchMemory = "kubernetes.io/batch-memory"
	ResourceKoordinatorMidCPU      = "kubernetes.io/mid-cpu"
	ResourceKoordinatorMidMemory   = "kubernetes.io/mid-memory"
)

// PriorityClasses of batch pods, with the values [PriorityMid], [PriorityBatch] and, for workers of pools,
// [PriorityWorker]. Their preemptionPolicy is Never: a batch pod that waits removes no other.
const (
	PriorityClassMid    = "waterline-mid"
	PriorityClassBatch  = "waterline-batch"
	PriorityClassWorker = "waterline-worker"
)

// PriorityClasses of Koordinator's batch pods. A pod keeps its class where Koordinator's resource names are used.
const (
	PriorityClassKoordinatorMid   = "koord-mid"
	PriorityClassKoordinatorBatch = "koord-batch"
)

// AnnotationBatchResources holds the requests and limits of a batch pod before they became batch resources, as a
// [BatchResources] in JSON. The manager's webhook writes it when the pod is created, and restores it when it is
// changed.
const AnnotationBatchResources = "waterline.io/batch-resources"

// AnnotationDownward is the prefix of an annotation of a batch pod. A number follows it, which is also its value: a
// request or a limit of CPU or memory, to which an item of one of the pod's own volumes refers. The manager's webhook
// writes it when the pod is created. No part of Waterline reads it: whoever changes it changes a file of that pod.
const AnnotationDownward = "waterline.io/downward-"

// BatchResources are the native requests and limits with which a batch pod was created. An entry counts only if its
// request equals the batch resources that the container requests, because without a webhook any user can write it.
type BatchResources struct {
	// Pod has the requests and limits of the pod as a whole (spec.resources). The part of its requests that no
	// container requested was divided among the containers. A container without a limit of its own has the pod's limit
	// only.
	Pod RequestedResources `json:"pod,omitzero"`
	// Containers has the requests and limits by container name, of init containers and sidecars too. Containers without
	// any are left out.
	Containers map[string]RequestedResources `json:"containers,omitempty"`
}

// RequestedResources are the requests and limits of a container, or of a pod as a whole.
type RequestedResources struct {
	// Request is the amount that is sold to it.
	Request ResourceAmounts `json:"request,omitzero"`
	// Limit is the limit, or zero without one: then the weight alone limits its CPU, and the request its memory.
	Limit ResourceAmounts `json:"limit,omitzero"`
}

// ResourceAmounts is an amount of CPU in milli-cores and one of memory in bytes, each from 0 to 2⁴⁶.
type ResourceAmounts struct {
	CPU    int64 `json:"cpu,omitempty"`
	Memory int64 `json:"memory,omitempty"`
}
