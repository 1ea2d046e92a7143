package model

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"time"
)

// Knob is a cgroup setting that Waterline may own, whatever file it stands in on this kernel.
type Knob uint8

// The knobs, each with the unit of its [Value].
const (
	Shares     Knob = iota + 1 // CPU weight among siblings, in shares: cpu.shares (v1), cpu.weight (v2)
	Quota                      // CFS quota in microseconds a period, or Unlimited: cpu.cfs_quota_us (v1), cpu.max (v2)
	Cpuset                     // CPUs that the group may run on, as a list: cpuset.cpus
	MemoryMax                  // most memory in bytes, or Unlimited: memory.limit_in_bytes (v1), memory.max (v2)
	Burst                      // of its quota, most that a group may save up, in microseconds: cpu.cfs_burst_us (v1), cpu.max.burst (v2)
	Idle                       // 1: the group runs only when nobody beside it wants to, and has no weight; else 0: cpu.idle
	Identity                   // who goes first, from -2 (after all others) by 0 (as without) to 3, where the kernel can: cpu.bvt_warp_ns
	MemoryMin                  // memory in bytes that the kernel never takes from the group, as long as those above have as much: memory.min (v2)
	MemoryLow                  // likewise, that it takes last: memory.low (v2)
	MemoryHigh                 // memory in bytes beyond which the group is slowed down and must give back, or Unlimited: memory.high (v2)
	Freeze                     // 1: no task of the group, or of one below, runs; else 0: cgroup.freeze (v2)
)

// Knobs lists all of them.
func Knobs() []Knob {
	return []Knob{Shares, Quota, Cpuset, MemoryMax, Burst, Idle, Identity, MemoryMin, MemoryLow, MemoryHigh, Freeze}
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
	case Freeze:
		return "cgroup.freeze"
	}
	return "unknown"
}

// OfMemory reports whether the knob's unit is bytes of memory.
func (k Knob) OfMemory() bool { return k == MemoryMax || k.Protects() || k == MemoryHigh }

// Protects reports whether the knob keeps memory from being reclaimed. Only cgroup v2 has such, and [MemoryHigh].
func (k Knob) Protects() bool { return k == MemoryMin || k == MemoryLow }

// Value is what a knob holds: a number in the knob's unit or, for [Cpuset], a list.
type Value struct {
	Number int64
	List   string // of CPUs, as [CPUSet.String] writes it, or Inherited
}

// Inherited is the list of CPUs of a group that has none of its own and so runs where its parent may. Only cgroup v2 has
// such groups.
const Inherited = "inherited"

// Number returns the value that is this number.
func Number(n int64) Value { return Value{Number: n} }

// List returns the value that is this set of CPUs.
func List(s CPUSet) Value { return Value{List: s.String()} }

// String returns the value as plans and explanations show it.
func (v Value) String() string {
	if v.List != "" {
		return v.List
	}
	return strconv.FormatInt(v.Number, 10)
}

// MarshalJSON writes a number or a string.
func (v Value) MarshalJSON() ([]byte, error) {
	if v.List != "" {
		return json.Marshal(v.List)
	}
	return strconv.AppendInt(nil, v.Number, 10), nil
}

// UnmarshalJSON reads what [Value.MarshalJSON] wrote. A string that is no list of CPUs is an error.
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
	set, err := ParseCPUs(v.List)
	if err == nil && set.String() != v.List {
		err = fmt.Errorf("%w: %.64q is not as the kernel writes it", ErrCPUList, v.List)
	}
	return err
}

// File names one cgroup file: a directory relative to the cgroup mount, such as "kubepods/burstable/pod0a1b", and a
// knob in it.
type File struct {
	Dir  string
	Knob Knob
}

// Compare orders files by directory, then knob.
func (f File) Compare(other File) int {
	if c := cmp.Compare(f.Dir, other.Dir); c != 0 {
		return c
	}
	return cmp.Compare(f.Knob, other.Knob)
}

// Setting is one line of a plan: what a file is to hold, and why.
type Setting struct {
	File
	Value    Value
	Reason   Reason  // why this value
	Release  bool    // bring the file to Value and then own it no more
	Deferred *Reason `json:",omitempty"` // the file is owned but not written now, and this is why; nil: it is
}

// Plan is everything that one round decided. It is the whole desired state, not a list of changes: a file that is not
// in it is nobody's business of ours.
//
// The order of Settings has no meaning; cgroup.Steps orders the writes that a plan needs.
type Plan struct {
	Settings     []Setting
	CPUs         *CPUPlan      // who runs on which CPUs; nil: nothing on this node asks for CPUs
	Slack        *Slack        // what the node could give to batch; nil: nothing was measured yet
	Suppress     *Suppression  // what batch may use of the CPU now; nil: it is not kept to anything
	Interference *Interference `json:",omitempty"` // whom online pods wait for, and who is throttled for it; nil: there is nothing to say
	Evict        *Evictions    `json:",omitempty"` // which batch pod should leave, and whether the node is hot; nil: nobody need
	Publish      Publication   // what is to stand on the Node object
	Report       Report        // what the NodeReport is to hold
	Observe      Observe       // what the next rounds need observed
	Conditions   []Condition   // that pods should have, ordered by UID
	Notices      []Notice      // what the owners of pods, or of the node, should be told
	Unsupported  []Reason      // what the policy asks for and the node's kernel cannot do
	Reclaim      *Reclaim      // which batch pod is asked for memory; nil: none
	Next         time.Time     // when deciding again could give another result though nothing else changed; zero: never
}

// Reclaim asks a batch pod to give memory back before somebody is short of it.
type Reclaim struct {
	UID    string
	Dir    string // of its cgroup
	Bytes  int64  // that are asked for, and expected
	Reason Reason
}

// Reclaimed is what came of a [Reclaim].
type Reclaimed struct {
	UID    string
	Asked  int64         // bytes
	Freed  int64         // bytes less in use than before
	Took   time.Duration // in which the kernel looked for them
	Failed string        // the kernel's error, such as "EAGAIN": there was less to take; "EINTR": it took too long; "": none
}

// Condition is a condition that a pod should have.
type Condition struct {
	UID       string // of the pod, as the API has it
	Namespace string
	Name      string
	PodCondition
}

// CPUPlan is who runs on which CPUs.
type CPUPlan struct {
	Node      CPUSet    // on which pods may run at all
	Reserved  CPUSet    // kept for the kubelet and the system: nobody's own
	Exclusive CPUSet    // each of one pod alone
	Share     CPUSet    // home of one pod, open to others
	Shared    CPUSet    // where all run that have no CPUs of their own: reserved ones and homes among them
	Own       []OwnCPUs // ordered by pod and container
	Batch     CPUSet    // where batch runs, of Shared; empty: where all do
	Left      []string  // UIDs of pods that the kubelet gives CPUs itself, ordered
}

// OwnCPUs are the CPUs of one container, or of one pod as a whole.
type OwnCPUs struct {
	UID       string // of the pod, as in its cgroup
	Container string // its name; "": the CPUs are shared by all containers of the pod
	Mode      CPUMode
	CPUs      CPUSet
	Memory    CPUSet `json:",omitzero"` // NUMA nodes that its memory should come from; empty: any
}

// Notice is something that a person should know about a pod or, with an empty UID, about the node.
type Notice struct {
	UID       string // of the pod
	Namespace string
	Name      string
	Reason    Reason
}
