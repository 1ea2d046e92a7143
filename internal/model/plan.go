package model

import (
	"cmp"
	"time"
)

// Knob is a cgroup setting that Waterline may own, whatever file it stands in on this kernel.
type Knob uint8

// The knobs, each with the unit of its [Setting.Value].
const (
	Shares Knob = iota + 1 // CPU weight among siblings, in shares: cpu.shares (v1), cpu.weight (v2)
	Quota                  // CFS quota in microseconds a period, or Unlimited: cpu.cfs_quota_us (v1), cpu.max (v2)
)

// String returns the knob's name in plans, metrics and explanations, the same on both cgroup versions.
func (k Knob) String() string {
	switch k {
	case Shares:
		return "cpu.shares"
	case Quota:
		return "cpu.quota"
	}
	return "unknown"
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
	Value   int64  // in the knob's unit
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
