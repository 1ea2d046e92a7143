package model

import (
	"slices"
	"strings"
	"time"
)

// QoSClass is the class that the kubelet puts a pod in, which decides where its cgroup stands.
type QoSClass uint8

// The kubelet's classes.
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

// Node is what one round of decisions is made from: the node as it was observed.
type Node struct {
	Now         time.Time
	Capacity    Amount // of the Node object; what is 0 is not known
	Allocatable Amount // that pods may request; what is 0 is not known
	Kubelet     Kubelet
	Tree        Tree
	Pods        []*Pod     // that the API (or the directory of manifests) binds to this node, ordered by UID
	PodsKnown   bool       // false until the first complete list: then an absent pod means nothing
	Owned       []Owned    // files that we have written and not given back
	Incidents   []Incident // what became of files since the round before, ordered by file
	Confined    []Confined // groups that may run on other CPUs than their lists say, ordered by file
	Topology    *Topology  // nil: not read, or nothing on this node asks for CPUs
	Reclaiming  bool       // a batch pod is asked for memory, and has not answered
	Reclaimed   *Reclaimed `json:",omitempty"` // what came of it, since the round before; nil: nothing
	Withdrawn   bool       // the manager lets this node sell nothing
	Load        *Load      // nil: nothing was measured yet
	Glance      Glance     `json:",omitzero"` // the last one
	Ruling      Ruling     // which policy governs the node
	Object      NodeObject // what the API shows of the Node
	Writes      APIWrites  // what became of writes to the API
}

// Ruling is which policy governs a node.
type Ruling struct {
	Policy     string // its name; "": none does
	Generation int64  // of that policy
	Selling    SellState
}

// NodeObject is what the API shows of a node's own objects.
type NodeObject struct {
	UID       string      // of the Node; "": not known yet
	Published []Published `json:",omitempty"` // resources of ours on the Node, in the order of [NodeResources]
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

// Wrote returns what is recorded of a file that we have written and not given back; nil if it is none.
func (n *Node) Wrote(file File) *Owned {
	i, found := slices.BinarySearchFunc(n.Owned, file, func(o Owned, f File) int { return o.File.Compare(f) })
	if !found {
		return nil
	}
	return &n.Owned[i]
}

// FindPod returns the pod of a UID; nil if it is none of these, which are ordered by that.
func FindPod(pods []*Pod, uid string) *Pod {
	i, found := slices.BinarySearchFunc(pods, uid, func(p *Pod, uid string) int { return strings.Compare(p.UID, uid) })
	if !found {
		return nil
	}
	return pods[i]
}

// Kubelet is what the node's kubelet is set to, and what it has done with its CPUs, as far as it was read. Two can be
// compared with ==.
type Kubelet struct {
	Known        bool
	CFSQuota     bool  // it enforces CPU limits with a CFS quota (cpuCFSQuota)
	QuotaPeriod  int64 // its CFS period in microseconds
	StaticCPUs   bool  // CPU manager policy static: it may lift quotas itself, since 1.33
	NoPodCgroups bool  // cgroupsPerQOS: false
	MemoryQoS    bool  // its feature gate: it protects memory itself

	// ReservedCPUs are those that no pod is to have for itself (reservedSystemCPUs). If there are any, they count and
	// ReservedMilli does not.
	ReservedCPUs CPUSet
	// ReservedMilli is what is set aside for the system and the kubelet (systemReserved and kubeReserved, cpu), in
	// milli-cores. Policy static keeps as many whole CPUs from being given to single containers, rounded up.
	ReservedMilli int64
	// ReservedMemory is what is set aside likewise, in bytes.
	ReservedMemory int64

	// PoolKnown says that the two sets below are those of now. They are only asked for under policy static. While it is
	// false they are the last that were heard, which may have been given away since.
	PoolKnown bool
	// AllocatableCPUs are those that policy static hands out: all but the reserved ones.
	AllocatableCPUs CPUSet
	// TakenCPUs are those of AllocatableCPUs that single containers have for themselves. Those of init containers that end
	// before the others start are missing, because the kubelet does not tell: if such a container has more CPUs than the
	// pod's others have together, the rest is neither here nor in the kubelet's shared pool for as long as the pod lives.
	TakenCPUs CPUSet
}

// Tree is the part of the cgroup hierarchy that pods live in, as it was last listed.
type Tree struct {
	Guaranteed   string              // directory of the Guaranteed pods, which is that of all pods: "kubepods"
	Burstable    string              // directory of the Burstable class
	BestEffort   string              // directory of the BestEffort class
	V2           bool                // the hierarchy is of cgroup v2
	ReadOnly     bool                // the mount can be read but not written
	NoCpusets    bool                // there is no cpuset controller
	NoBurst      bool                // the kernel has no [Burst] (before 5.14)
	NoIdle       bool                // the kernel has no [Idle] (before 5.15)
	NoIdentity   string              // what it takes to have [Identity] here; "": the kernel has it, or it is not known yet
	NoProtection string              // what it takes to have [MemoryMin] and [MemoryLow] count here; "": they do, or it is not known yet
	NoReclaim    bool                // the kernel cannot be asked to take memory from a group (cgroup v1, or before 5.19)
	MemoryQoS    bool                // a container was made with its memory protected, or slowed down: the kubelet's MemoryQoS is on
	NoPressure   bool                // the kernel does not tell for how long tasks of a group wait (cgroup v1, or started without PSI)
	CPUs         CPUSet              // on which pods may run at all: online, and allowed by the groups above; empty: not known
	Pods         map[string]PodGroup // by UID
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
	Inode      uint64   // of the directory: another one means another cgroup under the same name
	Idle       bool     // cpu.idle is set
	Containers []string // names of the directories in it, sorted
}

// Pod is what is known of one pod from the API.
type Pod struct {
	UID             string // as in the pod's cgroup: for a static pod the hash of its manifest, not the mirror's UID
	APIUID          string // as the API has it, which events refer to
	Namespace       string
	Name            string
	QoS             QoSClass
	Labels          map[string]string
	NamespaceLabels map[string]string
	Self            bool // the agent's own pod
	Critical        bool // of priority class system-node-critical or system-cluster-critical
	Ended           bool // its containers have ended for good: the kubelet no longer counts it
	Leaving         bool // it was deleted, and its containers may take Grace to end
	Grace           time.Duration
	Created         time.Time // zero: not known
	RequestMilli    int64     // CPU request of the pod as the kubelet sums it, in milli-cores
	LimitMilli      int64     // CPU limit of the pod as the kubelet sums it; 0 where any container has none
	LeastMilli      int64     // likewise, the least that it is now and is to become; 0 as soon as either is none
	PodLevelCPU     bool      // its CPU request or limit is the pod's own (spec.resources), shared by its containers
	MemoryLimit     int64     // of the pod as the kubelet sums it, in bytes; 0 where any container has none
	Containers      []Container
	Class           Class
	Tier            Tier   // "": it is not batch
	Pool            string // worker pool that it works for; "": none
	Owner           string // workload that it belongs to: "Deployment/shop/web"; that of a pod without one is its own
	MemoryRequest   int64  // of the pod as the scheduler sums it, in bytes
	Mid             Amount // requests of resources that are sold as TierMid
	Batch           Amount // requests of resources that are sold as TierBatch
	Koordinator     bool   // it asks for them under the names that Koordinator gives them
	Grant           Grant  // what its cgroup is to have for these, where it stands in for CPU or memory
	Annotations     PodAnnotations
	CPUCondition    PodCondition // what the API shows of the condition that says which CPUs the pod has
}

// PodCondition is the state of a condition of a pod. The zero value is that of a condition that the pod does not have.
type PodCondition struct {
	Met     bool
	Reason  Code
	Message string
}

// Container is what is known of one container of a pod.
type Container struct {
	Name         string
	ID           string // of its running instance, without the runtime's prefix; empty: not running yet
	Init         bool   // it ends before the others start: an init container that is not a sidecar
	RequestMilli int64  // its own CPU request, in milli-cores; its own limit where it has none
	LimitMilli   int64  // CPU limit that becomes its quota, in milli-cores: its own, else the pod's; 0: none
	LeastMilli   int64  // likewise, the least that it is now and, after a resize under way, is to become; 0 if either is none
	MemoryLimit  int64  // its own, in bytes; 0: none
	Grant        Grant  // what its cgroup is to have for the batch resources it asks for
}

// Grant is what a cgroup is to have for the batch or mid resources that the pod or container asks for: what the kubelet would
// compute had it asked for CPU and memory instead. An entry is 0 where there is nothing to set, because nothing was asked for
// or the kubelet sets it already.
type Grant struct {
	RequestMilli int64 // of CPU, from which its weight follows, in milli-cores
	LimitMilli   int64 // of CPU; 0 for a pod where any container has none
	Memory       int64 // limit in bytes; likewise
}

// PodAnnotations is what the annotations of a pod ask for, already parsed.
type PodAnnotations struct {
	Shares      int64        // 0: nothing
	Quota       QuotaMode    // "": nothing
	CPUs        CPUMode      // "": nothing
	Placement   CPUPlacement // "": nothing
	LocalMemory bool         // memory of the NUMA nodes of its CPUs only, from the start of its containers on
	Evict       EvictPreference
	BadCPUs     Reason   // why nothing can be made of what they ask of CPUs; zero: it can, or they ask nothing
	Notices     []Reason // what was wrong or double in them
}

// Owned is a file that we have written, from the undo record.
type Owned struct {
	File
	Ours   Value // what we wrote last
	Theirs Value // the newest value that another writer had set
}

// Confined is a group that may not run on the CPUs that its list says, because its ancestors' lists say otherwise.
type Confined struct {
	File
	To Value // the CPUs that it may run on
}

// IncidentKind is what happened to a file.
type IncidentKind uint8

// The kinds of incidents.
const (
	Overwritten IncidentKind = iota + 1 // another writer changed what we had written
	Rejected                            // the kernel refused our write
	Exceeded                            // a memory limit was not written, because the group uses more than that
)

// Incident is something that happened to one file since the round before.
type Incident struct {
	File
	Kind  IncidentKind
	Value Value  // Overwritten: what was found; Rejected: what was refused; Exceeded: what was not written
	Errno string // Rejected: the kernel's error, such as "EINVAL"
	Use   int64  // Exceeded: memory that the group uses, in bytes
}
