package model

import (
	"slices"
	"time"
)

// QoSClass is the Kubernetes QoS class of a pod. It decides the parent directory of the pod's cgroup.
type QoSClass uint8

// The QoS classes of Kubernetes.
const (
	Guaranteed QoSClass = iota
	Burstable
	BestEffort
)

// String returns the class as the Kubernetes API spells it.
func (q QoSClass) String() string {
	switch q {
	case Guaranteed:
		return "Guaranteed"
	case Burstable:
		return "Burstable"
	}
	return "BestEffort"
}

// Node is the input of one round of decisions: the node as observed.
type Node struct {
	Now         time.Time
	Capacity    Amount // of the Node object; 0: not known
	Allocatable Amount // allocatable of the Node object; 0: not known
	Kubelet     Kubelet
	Tree        Tree
	// Pods bound to this node by the API or the manifest directory, ordered by UID. Two may have one UID if one is a
	// forged mirror pod; [Plan.Pods] has each UID once.
	Pods       []*Pod
	PodsKnown  bool       // false until the first complete list: an absent pod means nothing before
	PodsKept   bool       // Pods is what the API showed an earlier agent: what was requested since is not in it
	Owned      []Owned    // files that Waterline has written and not restored
	Foreign    int        // files that a newer version of Waterline has written, and only it can restore
	Incidents  []Incident // events of files since the previous round, ordered by file
	Confined   []Confined // groups whose CPUs differ from their own list, ordered by file
	Topology   *Topology  // nil: not read, or no pod on this node requests CPUs
	Isolated   CPUSet     `json:",omitzero"` // CPUs that the kernel keeps out of load balancing (isolcpus)
	Reclaiming bool       // a memory.reclaim write is in progress
	// Result of the last one, if it ended since the previous round; nil: none.
	Reclaimed *Reclaimed `json:",omitempty"`
	Withdrawn bool       // the manager has withdrawn this node's offer
	// Koordinator is whether the cluster sells under Koordinator's resource names instead of ours.
	Koordinator bool  `json:",omitempty"`
	Load        *Load // nil: nothing was measured yet
	Stopping    bool  `json:",omitempty"` // the agent stops after this round, and nobody looks at waits then
	// Waits is how long online pods and the node's own services waited for CPUs, ordered by UID. Like Load, it is valid
	// until the next observation.
	Waits []PodWait `json:",omitempty"`
	// Figures are the figures of services that the last plan wanted, ordered by UID, and valid as long as Waits.
	Figures []ServiceFigure `json:",omitempty"`

	Ruling Ruling     // which policy governs the node
	Object NodeObject // what the API shows of the Node
	Writes APIWrites  // what became of writes to the API
}

// Ruling is which policy governs a node.
type Ruling struct {
	Policy     string // its name; "": none does
	Generation int64  // of that policy
	Selling    SellState
}

// NodeObject is what the API shows of a node's own objects.
type NodeObject struct {
	UID string // of the Node; "": not known yet
	// Published are the batch resources on the Node that Waterline wrote, in the order of [NodeResources]. A resource
	// under Koordinator's name counts only if the Node's own record, an annotation, says that Waterline wrote it.
	Published []Published `json:",omitempty"`
	Reported  bool        // it has a NodeReport
}

// APIWrites is the state of the agent's writes to the API.
type APIWrites struct {
	Offer  APIWrite // to the Node's status
	Report APIWrite // to the NodeReport
}

// APIWrite is the state of one kind of write, of which at most one is under way.
type APIWrite struct {
	Busy   bool `json:",omitempty"` // a write is under way
	Failed bool `json:",omitempty"` // the last write failed
}

// Wrote returns the undo record of a file that Waterline has written and not restored; nil if there is none.
func (n *Node) Wrote(file File) *Owned {
	i, found := slices.BinarySearchFunc(n.Owned, file, func(o Owned, f File) int { return o.File.Compare(f) })
	if !found {
		return nil
	}
	return &n.Owned[i]
}

// Runs reports whether a pod may use the node: it has a cgroup and has not ended.
func (n *Node) Runs(pod *Pod) bool {
	_, exists := n.Tree.Pods[pod.UID]
	return exists && !pod.Ended
}

// PodName returns namespace and name of a pod, or its UID if it is not known. The pods are ordered by UID.
func PodName(pods []*Pod, uid string) string {
	if pod := FindPod(pods, uid); pod != nil {
		return pod.Namespace + "/" + pod.Name
	}
	return uid
}

// FindPod returns the pod with a UID from pods ordered by UID; nil if there is none.
func FindPod(pods []*Pod, uid string) *Pod {
	if pod := FindByUID(pods, uid, func(p **Pod) string { return (*p).UID }); pod != nil {
		return *pod
	}
	return nil
}

// Kubelet is the configuration of the node's kubelet and its CPU assignments, as far as they were read. Values are
// comparable with ==.
type Kubelet struct {
	Known        bool
	Unread       string `json:",omitempty"` // how to correct why it was not read; "": it was, or may be by itself
	CFSQuota     bool   // enforces CPU limits with a CFS quota (cpuCFSQuota)
	QuotaPeriod  int64  // CFS period in microseconds
	StaticCPUs   bool   // CPU manager policy static; since 1.33 it may lift quotas itself
	NoPodCgroups bool   // cgroupsPerQOS: false
	MemoryQoS    bool   // feature gate MemoryQoS: the kubelet protects memory itself

	// ReservedCPUs are the CPUs that no pod may have exclusively (reservedSystemCPUs). If there are any,
	// ReservedMilli does not count.
	ReservedCPUs CPUSet
	// ReservedMilli is the CPU reserved for the system and the kubelet (systemReserved and kubeReserved), in
	// milli-cores. Policy static rounds it up to whole CPUs and assigns those to no container exclusively.
	ReservedMilli int64
	// ReservedMemory is the memory reserved in the same way, in bytes.
	ReservedMemory int64

	// PoolKnown means that the two sets below are current. They are queried only under policy static. While it is
	// false, they are the last known sets, and the kubelet may have assigned CPUs since.
	PoolKnown bool
	// AllocatableCPUs are the CPUs that policy static can assign: all except the reserved ones.
	AllocatableCPUs CPUSet
	// TakenCPUs are the AllocatableCPUs that the kubelet assigned to containers exclusively. CPUs of init containers
	// that end before the others start are missing, because the kubelet does not report them. If such a container has
	// more CPUs than the pod's other containers together, the difference is neither here nor in the kubelet's shared
	// pool while the pod lives.
	TakenCPUs CPUSet
}

// Tree is the part of the cgroup hierarchy that contains pods, as last listed.
type Tree struct {
	Guaranteed string // directory of Guaranteed pods, the parent of all pods: "kubepods"
	Burstable  string // directory of the Burstable class
	BestEffort string // directory of the BestEffort class
	V2         bool   // the hierarchy is cgroup v2
	ReadOnly   bool   // the mount is read-only
	NoCpusets  bool   // there is no cpuset controller
	NoBurst    bool   // the kernel has no [Burst] (before 5.14)
	NoIdle     bool   // the kernel has no [Idle] (before 5.15)
	NoIdentity string // what [Identity] requires here; "": the kernel has it, or this is not known yet
	// What effective [MemoryMin] and [MemoryLow] require here; "": they are effective, or this is not known yet.
	NoProtection string
	NoReclaim    bool // the kernel has no memory.reclaim (cgroup v1, or before 5.19)
	// A container was created with memory.min, memory.low or memory.high: the kubelet's MemoryQoS is on.
	MemoryQoS  bool
	NoPressure bool // the kernel reports no pressure per group (cgroup v1, or started without PSI)
	// CPUs that pods may use: online, and allowed by the groups above; empty: not known.
	CPUs CPUSet
	Pods map[string]PodGroup // by UID
	// Outside are pods of which a container runs outside of the pod's cgroup, ordered by UID: nothing that is written
	// to or measured in the cgroups of pods is true of them.
	Outside []Outside `json:",omitempty"`
}

// Outside is a pod of which a container runs outside of the pod's cgroup.
type Outside struct {
	UID string // of the pod
	Dir string // of the container
}

// Class returns the directory of a QoS class.
func (t *Tree) Class(q QoSClass) string {
	switch q {
	case Burstable:
		return t.Burstable
	case BestEffort:
		return t.BestEffort
	}
	return t.Guaranteed
}

// PodGroup is the cgroup of one pod.
type PodGroup struct {
	Dir        string
	Inode      uint64   // of the directory; it changes when the cgroup is recreated under the same name
	Idle       bool     // cpu.idle is set
	Containers []string // names of the subdirectories, sorted
	// CPUs are the subdirectories' own lists of CPUs, in the same order; nil: not read. They are read for pods to whose
	// containers a kubelet would assign CPUs of their own, see [Detail.CPUs].
	CPUs []CPUSet `json:",omitempty"`
	// Paths of the subdirectories, in the same order, so that rules need not join them in each round; nil: not joined.
	Paths []string `json:"-"`
}

// Path returns the directory of one of the containers.
func (g *PodGroup) Path(i int) string {
	if i < len(g.Paths) {
		return g.Paths[i]
	}
	return g.Dir + "/" + g.Containers[i]
}

// Join fills in the paths.
func (g *PodGroup) Join() {
	g.Paths = make([]string, len(g.Containers))
	for i, name := range g.Containers {
		g.Paths[i] = g.Dir + "/" + name
	}
}

// Pod is one pod as the API describes it.
type Pod struct {
	// As in the pod's cgroup; for a static pod the hash of its manifest, not the UID of the mirror pod.
	UID             string
	APIUID          string // as in the API, for events
	Namespace       string
	Name            string
	IP              string // primary address; "": none yet, or none that is a pod's
	QoS             QoSClass
	Labels          map[string]string
	NamespaceLabels map[string]string
	Self            bool // the agent's own pod
	Critical        bool // of priority class system-node-critical or system-cluster-critical
	Ended           bool // all containers have ended for good; the kubelet no longer counts the pod
	Leaving         bool // deleted; its containers have up to Grace to end
	Grace           time.Duration
	Created         time.Time // zero: not known
	RequestMilli    int64     // CPU request of the pod as the kubelet sums it, in milli-cores
	LimitMilli      int64     // CPU limit of the pod as the kubelet sums it; 0 if any container has none
	LeastMilli      int64     // the lower of the limits in spec and status; 0 if either has none
	PodLevelCPU     bool      // its CPU request or limit is set in spec.resources and shared by its containers
	LimitPending    bool      // LimitMilli is that of a pending resize of spec.resources; the one in force is not known
	MemoryLimit     int64     // of the pod as the kubelet sums it, in bytes; 0 if any container has none
	Containers      []Container
	Class           Class
	Tier            Tier   // "": the pod is not batch
	Pool            string // worker pool that controls the pod; "": none
	Owner           string // owning workload, such as "Deployment/shop/web"; a pod without one is its own owner
	MemoryRequest   int64  // of the pod as the scheduler sums it, in bytes
	Mid             Amount // requests of mid resources
	Batch           Amount // requests of batch resources
	Held            int64  // memory in bytes that it uses beyond what its node's slack allows, and will release
	Koordinator     bool   // it requests them under Koordinator's resource names
	Grant           Grant  // cgroup settings for these requests, where they replace CPU or memory requests
	Annotations     PodAnnotations
	CPUCondition    PodCondition // current value in the API of the condition about the pod's CPUs
}

// Static reports whether the pod is a static pod, which the API shows as a mirror pod with another UID.
func (p *Pod) Static() bool { return p.UID != p.APIUID }

// PodCondition is the state of a pod condition. The zero value means that the pod does not have the condition.
type PodCondition struct {
	Met     bool
	Reason  Code
	Message string
}

// Container is one container of a pod as the API describes it.
type Container struct {
	Name         string
	ID           string // of the running instance, without the runtime's prefix; "": not running yet
	Init         bool   // an init container that ends before the others start; not a sidecar
	RequestMilli int64  // its own CPU request, or limit if it has no request, in milli-cores
	LimitMilli   int64  // CPU limit for its quota, in milli-cores: its own, else the pod's; 0: none
	// The lower of the limits in spec and status (they differ during a resize); 0 if either has none.
	LeastMilli  int64
	MemoryLimit int64 // its own, in bytes; 0: none
	Grant       Grant // cgroup settings for the batch resources that it requests
}

// Grant is the set of cgroup settings for the batch or mid resources that a pod or container requests. It is what the
// kubelet would compute for the same amounts of CPU and memory. An entry is 0 if nothing was requested or the kubelet
// sets the file itself.
type Grant struct {
	RequestMilli int64 // CPU request in milli-cores, which determines the weight
	LimitMilli   int64 // CPU limit in milli-cores; 0 for a pod if any container has none
	Memory       int64 // memory limit in bytes; 0 for a pod if any container has none
}

// PodAnnotations is the parsed content of a pod's annotations.
type PodAnnotations struct {
	Shares      int64        // 0: none
	Quota       QuotaMode    // "": none
	CPUs        CPUMode      // "": none
	Placement   CPUPlacement // "": none
	CPUsOfClass bool         // CPUs follows from the pod's class, not from an annotation
	Hint        CPUSet       `json:",omitzero"` // CPUs to choose, if the pod can have them; empty: none
	LocalMemory bool         // memory only from the NUMA nodes of its CPUs, from the start of its containers
	Evict       EvictPreference
	BadCPUs     Reason   // why its CPU annotations cannot be used; zero: they can, or there are none
	Notices     []Reason // errors and duplicates in the annotations
}

// Owned is a file that Waterline has written, as in the undo record.
type Owned struct {
	File
	Ours   Value // value that Waterline wrote last
	Theirs Value // newest value from another writer
}

// Confined is a group that runs on other CPUs than its own list allows, because of the lists of its ancestors.
type Confined struct {
	File
	To Value // CPUs that it may use
}

// IncidentKind is the kind of an [Incident].
type IncidentKind uint8

// The kinds of incidents.
const (
	Overwritten IncidentKind = iota + 1 // another writer changed a value of Waterline
	Rejected                            // the kernel refused a write
	Exceeded                            // a memory limit was not written, because the group uses more than the limit
)

// Incident is an event of one file since the previous round.
type Incident struct {
	File
	Kind  IncidentKind
	Value Value  // Overwritten: the value found; Rejected: the value refused; Exceeded: the value not written
	Errno string // Rejected: the kernel's error, such as "EINVAL"
	Use   int64  // Exceeded: memory usage of the group, in bytes
}
