package model

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// Knob is a cgroup setting that Waterline may own. Its file name depends on the kernel and the cgroup version.
type Knob uint8

// The knobs, each with the unit of its [Value].
const (
	Shares     Knob = iota + 1 // CPU weight among siblings, in shares: cpu.shares (v1), cpu.weight (v2)
	Quota                      // CFS quota and its period: cpu.cfs_quota_us and cpu.cfs_period_us (v1), cpu.max (v2)
	Cpuset                     // CPUs that the group may run on, as a list: cpuset.cpus
	MemoryMax                  // limit in bytes, or Unlimited: memory.limit_in_bytes (v1), memory.max (v2)
	Burst                      // unused quota that it may accumulate, in µs: cpu.cfs_burst_us (v1), cpu.max.burst (v2)
	Idle                       // 1: it runs only when no sibling wants to, and has no weight; else 0: cpu.idle
	Identity                   // precedence, -2 (last) to 3 (first), default 0; vendor kernels only: cpu.bvt_warp_ns
	MemoryMin                  // bytes never reclaimed, up to the ancestors' memory.min: memory.min (v2)
	MemoryLow                  // bytes reclaimed last, up to the ancestors' memory.low: memory.low (v2)
	MemoryHigh                 // bytes above which it is slowed down and reclaimed, or Unlimited: memory.high (v2)
)

// Knobs lists all knobs.
func Knobs() []Knob {
	return []Knob{Shares, Quota, Cpuset, MemoryMax, Burst, Idle, Identity, MemoryMin, MemoryLow, MemoryHigh}
}

// String returns the knob's name in plans, metrics and explanations, the same on both cgroup versions.
func (k Knob) String() string {
	switch k {
	case Shares:
		return "cpu.shares"
	case Quota:
		return "cpu.quota"
	case Cpuset:
		return "cpuset.cpus"
	case MemoryMax:
		return "memory.max"
	case Burst:
		return "cpu.burst"
	case Idle:
		return "cpu.idle"
	case Identity:
		return "cpu.bvt_warp_ns"
	case MemoryMin:
		return "memory.min"
	case MemoryLow:
		return "memory.low"
	case MemoryHigh:
		return "memory.high"
	}
	return "unknown"
}

// OfMemory reports whether the knob's unit is bytes of memory.
func (k Knob) OfMemory() bool { return k == MemoryMax || k.Protects() || k == MemoryHigh }

// Protects reports whether the knob protects memory from reclaim. These knobs, and [MemoryHigh], exist only on cgroup
// v2.
func (k Knob) Protects() bool { return k == MemoryMin || k == MemoryLow }

// Value is the content of a knob: a number in the knob's unit or, for [Cpuset], a list. A [Quota] has two numbers,
// which are one value: a quota means nothing without its period.
type Value struct {
	Number int64
	Period int64  // of a quota: CFS period in µs, see QuotaOf; 0: the one that the group has, whatever it is
	List   string // set of CPUs, as [CPUSet.String] returns it, or Inherited
}

// Inherited is the CPU list of a group without its own list, which runs on its parent's CPUs. Only cgroup v2 has such
// groups.
const Inherited = "inherited"

// Number returns the value for a number.
func Number(n int64) Value { return Value{Number: n} }

// List returns the value for a set of CPUs.
func List(s CPUSet) Value { return Value{List: s.String()} }

// String returns the value as plans and explanations show it. The period of a quota is shown, as in cpu.max, unless it
// is [DefaultQuotaPeriod].
func (v Value) String() string {
	switch {
	case v.List != "":
		return v.List
	case v.Period != 0 && v.Period != DefaultQuotaPeriod:
		return v.quota()
	}
	return strconv.FormatInt(v.Number, 10)
}

// MarshalJSON encodes the value as a number or a string. A quota with a period is a string of both.
func (v Value) MarshalJSON() ([]byte, error) {
	switch {
	case v.List != "":
		return json.Marshal(v.List)
	case v.Period != 0:
		return json.Marshal(v.quota())
	}
	return strconv.AppendInt(nil, v.Number, 10), nil
}

// UnmarshalJSON decodes the output of [Value.MarshalJSON]. A string that is neither a CPU list nor a quota is an error.
func (v *Value) UnmarshalJSON(text []byte) error {
	*v = Value{}
	if len(text) == 0 || text[0] != '"' {
		if err := json.Unmarshal(text, &v.Number); err != nil {
			return fmt.Errorf("reading a value: %w", err)
		}
		return nil
	}
	if err := json.Unmarshal(text, &v.List); err != nil {
		return fmt.Errorf("reading a value: %w", err)
	}
	if v.List == Inherited {
		return nil
	}
	if quota, ok := parseQuota(v.List); ok {
		*v = quota
		return nil
	}
	set, err := ParseCPUs(v.List)
	if err == nil && set.String() != v.List {
		err = fmt.Errorf("%w: %.64q is not as the kernel writes it", ErrCPUList, v.List)
	}
	return err
}

// File identifies one cgroup file: a directory relative to the cgroup mount, such as "kubepods/burstable/pod0a1b",
// and a knob in that directory.
type File struct {
	Dir  string
	Knob Knob
}

// Compare orders files by directory, then by knob.
func (f File) Compare(other File) int {
	if c := cmp.Compare(f.Dir, other.Dir); c != 0 {
		return c
	}
	return cmp.Compare(f.Knob, other.Knob)
}

// Setting is one line of a plan: the desired value of a file and the reason.
type Setting struct {
	File
	Value    Value
	Reason   Reason  // why this value
	Release  bool    // set the file to Value and then give up ownership
	Deferred *Reason `json:",omitempty"` // why the file is owned but not written now; nil: it is written
}

// Plan is the result of one round. It is the whole desired state, not a list of changes: Waterline leaves files
// outside the plan alone.
//
// The order of Settings has no meaning; cgroup.Steps orders the writes that a plan needs.
type Plan struct {
	Pods         []*Pod `json:"-"` // of the node, with the requests that the policy allows them, ordered by UID
	Settings     []Setting
	CPUs         *CPUPlan      // allocation of CPUs to pods; nil: no pod requests CPUs
	Slack        *Slack        // allowance and offer; nil: nothing was measured yet
	Batch        Batch         // what batch does
	Harm         *Harm         `json:",omitempty"` // of online pods; nil: it is not searched
	Suppress     *Suppression  // CPU limit of batch; nil: batch is not limited
	Interference *Interference `json:",omitempty"` // interference and throttled pods; nil: nothing to report
	Evict        *Evictions    `json:",omitempty"` // eviction request and whether the node is hot; nil: none
	Publish      Publication   // desired resources on the Node object
	Report       Report        // desired content of the NodeReport
	Observe      Observe       // what the next rounds need observed
	Conditions   []Condition   // desired pod conditions, ordered by UID
	Notices      []Notice      // messages for the owners of pods or of the node
	Unsupported  []Reason      // features of the policy that the node's kernel does not support
	Reclaim      *Reclaim      // memory.reclaim write to one batch pod; nil: none
	Next         time.Time     // when the result could change although only time passes; zero: never
}

// ReportMaxAge is the age from which on readers do not trust a node's report, because its agent is silent. Agents write
// a report again before that, even if nothing has changed.
const ReportMaxAge = 30 * time.Minute

// Reclaim requests that the kernel reclaims memory from one batch pod, before memory for others runs short.
type Reclaim struct {
	UID    string
	Dir    string // of its cgroup
	Bytes  int64  // bytes to reclaim
	Reason Reason
}

// Reclaimed is the result of a [Reclaim].
type Reclaimed struct {
	UID       string
	Requested int64         // bytes requested
	Freed     int64         // reduction of memory usage, in bytes
	Took      time.Duration // duration of the write
	// The kernel's error, such as "EAGAIN": less was reclaimable; "EINTR": it took too long; "": none.
	Failed string
}

// Condition is a condition that a pod should have.
type Condition struct {
	UID       string // of the pod, in the API
	Namespace string
	Name      string
	PodCondition
}

// CPUPlan is the allocation of CPUs to pods.
type CPUPlan struct {
	Node      CPUSet    // CPUs that pods may use
	Reserved  CPUSet    // for the kubelet and the system; never exclusive or home CPUs
	Exclusive CPUSet    // exclusive CPUs of pods
	Share     CPUSet    // home CPUs of pods, open to others
	Shared    CPUSet    // for all pods without their own set; includes Reserved and Share
	Own       []OwnCPUs // ordered by pod and container
	Batch     CPUSet    // subset of Shared for batch; empty: all of Shared
	// CPUs where limited batch never runs, unless there are no others: CPUs that the kubelet reserves by their numbers,
	// and isolated ones.
	NotBatch CPUSet   `json:",omitzero"`
	Isolated CPUSet   `json:",omitzero"` // isolated CPUs that are in none of these sets
	Left     []string // UIDs of pods whose CPUs the kubelet assigns, or assigned under a former policy, ordered
	// CPUs that containers keep from a former policy of the kubelet, ordered by pod; they are in none of these sets.
	Pinned []OwnCPUs `json:",omitempty"`
}

// Narrow reports whether pods without their own set may not run on all CPUs. While no pod has CPUs of its own, their
// lists stay as they are, with isolated and pinned CPUs, as without Waterline.
func (p *CPUPlan) Narrow() bool {
	all := p.Shared.Or(p.Isolated)
	for i := range p.Pinned {
		all = all.Or(p.Pinned[i].CPUs)
	}
	return all != p.Node
}

// Alone reports whether a container of a pod has CPUs on which no other pod runs; without a name, whether the pod
// as a whole has them. It is false without a plan.
func (p *CPUPlan) Alone(uid, container string) bool {
	return p != nil && slices.ContainsFunc(p.Own, func(o OwnCPUs) bool {
		return o.UID == uid && o.Mode == CPUExclusive && (o.Container == "" || o.Container == container)
	})
}

// OwnCPUs is the CPU set of one container, or of one pod as a whole.
type OwnCPUs struct {
	UID       string // of the pod, as in its cgroup
	Container string // name; "": all containers of the pod share the CPUs
	Mode      CPUMode
	CPUs      CPUSet
	Memory    CPUSet `json:",omitzero"` // NUMA nodes for its memory; empty: any
}

// CPURoom is what a node has for pods that will request their own CPUs.
type CPURoom struct {
	Free      CPUSet    // CPUs that such a pod can get: neither reserved nor another pod's own
	Exclusive int       // how many of them can become exclusive: one CPU of the node stays shared
	Topology  *Topology `json:"-"` // of the node; it is in [Node] too
}

// Notice is a message about a pod or, with an empty UID, about the node.
type Notice struct {
	UID       string // of the pod
	Namespace string
	Name      string
	Reason    Reason
}

// FileStatus is the content of a file of the plan, for explanations.
type FileStatus struct {
	Setting
	Exists bool
	Is     Value
	Was    Value // the newest value of another writer
	Owned  bool  // Was is on record
}
