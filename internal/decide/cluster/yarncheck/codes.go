package yarncheck

// Code names a finding. Codes do not change between releases.
type Code string

// The codes.
const (
	NoActiveRM    Code = "NoActiveRM"    // no ResourceManager answers as the active one
	RMUnreachable Code = "RMUnreachable" // a ResourceManager does not answer
	RMNotListed   Code = "RMNotListed"   // the cluster has more ResourceManagers than were named

	SchedulerNotCapacity Code = "SchedulerNotCapacity" // the scheduler has no partitions
	VCoresIgnored        Code = "VCoresIgnored"        // the resource calculator looks at memory only
	LabelsDisabled       Code = "LabelsDisabled"       // node labels are off
	LabelsNotCentralized Code = "LabelsNotCentralized" // the ResourceManager takes no labels from clients
	LabelStoreTemporary  Code = "LabelStoreTemporary"  // labels are stored in a directory for temporary files
	LabelStoreLocal      Code = "LabelStoreLocal"      // each ResourceManager stores labels for itself
	LabelMissing         Code = "LabelMissing"         // the label does not exist
	LabelShared          Code = "LabelShared"          // containers that do not ask for the label land on its nodes
	MinimumAboveFloor    Code = "MinimumAboveFloor"    // the ResourceManager refuses workers as small as the floor

	NoQueueForLabel         Code = "NoQueueForLabel"         // no queue can use the label
	QueueHasNothing         Code = "QueueHasNothing"         // a queue may ask for the label, and never gets anything
	QueueHasNoShare         Code = "QueueHasNoShare"         // a queue has no guaranteed capacity of the label
	QueueDefaultElsewhere   Code = "QueueDefaultElsewhere"   // jobs of a queue do not use the label by themselves
	RESTIgnoresQueueDefault Code = "RESTIgnoresQueueDefault" // applications submitted by REST do not, either

	MastersOnLabel     Code = "MastersOnLabel"     // application masters land on workers
	MasterPercentZero  Code = "MasterPercentZero"  // jobs of a queue wait for ever, all but one
	MasterLabelRefused Code = "MasterLabelRefused" // applications of a queue are refused
	MastersBorrowLabel Code = "MastersBorrowLabel" // masters of the default partition land on idle workers
	NoFixedNodes       Code = "NoFixedNodes"       // there is no node for application masters

	RecoveryOff       Code = "RecoveryOff"       // applications are lost with the ResourceManager's process
	RecoveryRestarts  Code = "RecoveryRestarts"  // containers are lost with the ResourceManager's process
	ExpiryLong        Code = "ExpiryLong"        // work of a worker that is gone is repeated late
	NoExcludePath     Code = "NoExcludePath"     // workers cannot be decommissioned gracefully
	ExcludePathNotXML Code = "ExcludePathNotXML" // hosts cannot have timeouts of their own
	IncludePathSet    Code = "IncludePathSet"    // hosts that are not listed are refused

	WebPortOpen  Code = "WebPortOpen"  // whoever reaches the web port can resize nodes
	UserNotAdmin Code = "UserNotAdmin" // the pool may not label nodes

	HostUnknown   Code = "HostUnknown"   // the name of a NodeManager's host does not resolve
	HostOtherName Code = "HostOtherName" // its address does not resolve back

	LogsNotAggregated Code = "LogsNotAggregated" // containers' logs go with their worker
	LogsOnOwnDisk     Code = "LogsOnOwnDisk"     // so do they, because they are aggregated onto its disk
	LogsOnlyAtEnd     Code = "LogsOnlyAtEnd"     // logs of containers that are killed at the end are lost

	AuxServiceInvalid   Code = "AuxServiceInvalid"   // a service has no class, or no valid name
	AuxServicePort      Code = "AuxServicePort"      // two services listen on one port
	AuxServiceMissing   Code = "AuxServiceMissing"   // jobs ask for a service that workers lack
	ContainersShareUser Code = "ContainersShareUser" // containers of all users run as one user, on a secure cluster

	SparkKeepsNothing      Code = "SparkKeepsNothing"      // Spark does not move data away from a node that leaves
	SparkShuffleService    Code = "SparkShuffleService"    // its data is kept by NodeManagers, and lost with them
	SparkNoFallback        Code = "SparkNoFallback"        // its data is lost if all executors leave at once
	SparkAllocationRefused Code = "SparkAllocationRefused" // it does not start with dynamic allocation
	SparkAllocationHolds   Code = "SparkAllocationHolds"   // it keeps idle executors, and so their workers
	SparkMasterOnLabel     Code = "SparkMasterOnLabel"     // its masters ask for workers
	SparkElsewhere         Code = "SparkElsewhere"         // its executors do not ask for workers

	ShuffleOneReplica     Code = "ShuffleOneReplica"     // a shuffle server that is killed fails jobs
	ShuffleRecomputes     Code = "ShuffleRecomputes"     // a shuffle server that is killed makes tasks run again
	ShuffleQuorum         Code = "ShuffleQuorum"         // numbers of replicas that no application starts with
	ShuffleNoSpare        Code = "ShuffleNoSpare"        // jobs have replicas, and cannot miss a server all the same
	ShuffleServersUnknown Code = "ShuffleServersUnknown" // the addresses of the shuffle service are missing
	ShuffleStorageUnknown Code = "ShuffleStorageUnknown" // MapReduce does not know where servers keep its data
	ShuffleIncomplete     Code = "ShuffleIncomplete"     // only some parts of MapReduce use the shuffle service
	ShuffleSerializer     Code = "ShuffleSerializer"     // the serializer of Spark does not suit the shuffle service
	ShuffleLocalReader    Code = "ShuffleLocalReader"    // Spark plans reads that are slow with the shuffle service
	ShuffleAllocation     Code = "ShuffleAllocation"     // Spark does not know that its data outlives executors
)
