package v1alpha1

// PolicyMode is how far Waterline goes on a node.
// +kubebuilder:validation:Enum=Observe;Enforce;Disabled
type PolicyMode string

// The modes of a policy.
const (
	ModeObserve  PolicyMode = "Observe"  // decide and report, write nothing
	ModeEnforce  PolicyMode = "Enforce"  // carry the decisions out
	ModeDisabled PolicyMode = "Disabled" // restore everything, decide nothing
)

// SellMethod is how the offer of a resource is found.
// +kubebuilder:validation:Enum=Predicted;Realtime;Static
type SellMethod string

// The methods.
const (
	SellPredicted SellMethod = "Predicted" // what online pods are not expected to use
	SellRealtime  SellMethod = "Realtime"  // what they do not use now
	SellStatic    SellMethod = "Static"    // a fixed part of the capacity
)

// SuppressMethod is how it is found how much CPU batch may use.
// +kubebuilder:validation:Enum=OnHarm;Arithmetic;None
type SuppressMethod string

// The methods of suppression.
const (
	SuppressOnHarm       SuppressMethod = "OnHarm"     // all of it while no online pod is harmed
	SuppressByArithmetic SuppressMethod = "Arithmetic" // what online pods leave under the waterline
	SuppressByNone       SuppressMethod = "None"       // all of it
)

// BatchClass is how the kernel puts batch pods without a weight of their own behind other pods.
// +kubebuilder:validation:Enum=Weight;Idle;GroupIdentity
type BatchClass string

// The classes.
const (
	BatchByWeight   BatchClass = "Weight"        // by what they requested
	BatchByIdle     BatchClass = "Idle"          // they run only when no sibling wants to
	BatchByIdentity BatchClass = "GroupIdentity" // on kernels with group identities, they are marked as batch
)

// IsolatedCPUsUse is how CPUs are used that the kernel keeps out of load balancing.
// +kubebuilder:validation:Enum=Unused;Used
type IsolatedCPUsUse string

// The uses of isolated CPUs.
const (
	IsolatedUnused IsolatedCPUsUse = "Unused" // by nobody
	IsolatedUsed   IsolatedCPUsUse = "Used"   // like others, by online pods
)

// Tier is how long a batch resource is expected to be there.
// +kubebuilder:validation:Enum=Batch;Mid
type Tier string

// The tiers.
const (
	TierBatch Tier = "Batch" // for an hour
	TierMid   Tier = "Mid"   // for a day
)

// WeightScope is the range in which a CPU weight counts.
// +kubebuilder:validation:Enum=Node;Class
type WeightScope string

// The scopes.
const (
	ScopeNode  WeightScope = "Node"  // against all pods of the node
	ScopeClass WeightScope = "Class" // among pods of the same QoS class
)

// WeightQuota is the CFS quota of pods with a weight.
// +kubebuilder:validation:Enum=Kubelet;Unlimited
type WeightQuota string

// The quotas.
const (
	QuotaKubelet   WeightQuota = "Kubelet"   // the one that follows from their limits
	QuotaUnlimited WeightQuota = "Unlimited" // none
)

// CPUManagerMode is the CPUs on which a pod may run.
// +kubebuilder:validation:Enum=None;Share;Exclusive
type CPUManagerMode string

// The modes of CPU sets.
const (
	CPUNone      CPUManagerMode = "None"      // all that no pod has exclusively
	CPUShare     CPUManagerMode = "Share"     // as many as its limit, which others may use too
	CPUExclusive CPUManagerMode = "Exclusive" // as many as its limit, for itself
)

// CPUPlacement is how the CPUs of a pod are chosen.
// +kubebuilder:validation:Enum=Packed;Spread;PhysicalCores
type CPUPlacement string

// The placements.
const (
	PlacePacked CPUPlacement = "Packed"        // on few physical cores
	PlaceSpread CPUPlacement = "Spread"        // over many physical cores
	PlaceCores  CPUPlacement = "PhysicalCores" // in whole physical cores
)

// SellState is the state of a policy's windows.
// +kubebuilder:validation:Enum=Open;Draining;Closed
type SellState string

// The states.
const (
	SellOpen     SellState = "Open"     // slack is sold
	SellDraining SellState = "Draining" // nothing new is sold
	SellClosed   SellState = "Closed"   // nothing is sold
)
