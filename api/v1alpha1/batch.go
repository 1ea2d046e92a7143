package v1alpha1

// The namespaces whose pods a policy may make batch pods say so by this label with this value.
const (
	LabelColocation   = "waterline.io/colocation"
	ColocationEnabled = "enabled"
)

// The names under which Koordinator sells slack. Where its names are published ours are not: one slack is sold once. A
// pod may ask by either.
const (
	ResourceKoordinatorBatchCPU    = "kubernetes.io/batch-cpu"
	ResourceKoordinatorBatchMemory = "kubernetes.io/batch-memory"
	ResourceKoordinatorMidCPU      = "kubernetes.io/mid-cpu"
	ResourceKoordinatorMidMemory   = "kubernetes.io/mid-memory"
)

// PriorityClasses of batch pods, with the values [PriorityMid] and [PriorityBatch] and the preemptionPolicy Never: an
// online pod without a class has priority 0, and no batch pod may push it aside.
const (
	PriorityClassMid   = "waterline-mid"
	PriorityClassBatch = "waterline-batch"
)

// AnnotationBatchResources is what a batch pod asked for before its requests were turned into batch resources, a
// [BatchResources] in JSON. The manager's webhook writes it when the pod is created, and puts it back when somebody
// changes it.
const AnnotationBatchResources = "waterline.io/batch-resources"

// BatchResources is what a batch pod asked for itself: of CPU a weight and perhaps a limit, of memory a limit. An entry
// counts only where its request is what the container asks for in batch resources, because where no webhook runs
// anybody can write it.
type BatchResources struct {
	// Pod is what the pod asked for as a whole (spec.resources). Where it names a resource, what its containers did not
	// ask for of it was shared out to them, and a container without a limit of its own is limited by the pod's only.
	Pod AskedResources `json:"pod,omitzero"`
	// Containers are by name: init containers and sidecars too, but only those that asked for something.
	Containers map[string]AskedResources `json:"containers,omitempty"`
}

// AskedResources is what a container, or a pod as a whole, asked for.
type AskedResources struct {
	// Request is what is sold to it.
	Request ResourceAmounts `json:"request,omitzero"`
	// Limit is zero where it had none: then its weight alone limits its CPU, and the request its memory.
	Limit ResourceAmounts `json:"limit,omitzero"`
}

// ResourceAmounts is an amount of CPU in milli-cores and one of memory in bytes, each from 0 to 2⁴⁶.
type ResourceAmounts struct {
	CPU    int64 `json:"cpu,omitempty"`
	Memory int64 `json:"memory,omitempty"`
}
