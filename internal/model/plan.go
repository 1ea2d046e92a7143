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
	Shares Knob = iota + 1 // CPU weight among siblings, in shares: cpu.shares (v1), cpu.weight (v2)
	Quota                  // CFS quota in microseconds a period, or Unlimited: cpu.cfs_quota_us (v1), cpu.max (v2)
	Cpuset                 // CPUs that the group may run on, as a list: cpuset.cpus
)

// Knobs lists all of them.
func Knobs() []Knob { return []Knob{Shares, Quota, Cpuset} }

// String returns the knob's name in plans, metrics and explanations, the same on both cgroup versions.
func (k Knob) String() string {
	switch k {
	case Shares:
		return "cpu.shares"
	case Quota:
		return "cpu.quota"
	case Cpuset:
		return "cpuset.cpus"
	}
	return "unknown"
}

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
	Value   Value
	Reason  Reason // why this value
	Release bool   // bring the file to Value and then own it no more
	Hold    Reason // when its code is set: the file is owned but not written now, and this is why
}

// Plan is everything that one round decided. It is the whole desired state, not a list of changes: a file that is not
// in it is nobody's business of ours.
//
// The order of Settings has no meaning; cgroup.Steps orders the writes that a plan needs.
type Plan struct {
	Settings []Setting
	Notices  []Notice  // what the owners of pods, or of the node, should be told
	Next     time.Time // when deciding again could give another result though nothing else changed; zero: never
}

// Notice is something that a person should know about a pod or, with an empty UID, about the node.
type Notice struct {
	UID       string // of the pod
	Namespace string
	Name      string
	Reason    Reason
}
