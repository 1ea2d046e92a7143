package model

import (
	"encoding/json"
	"fmt"
	"sort"
	"time"
)

// Load is what a node measured of itself. Whoever measured it uses it again: it is valid until the next measurement.
//
// Times are on the machine's clock since boot, which goes on while the machine is suspended and which nobody can set
// (CLOCK_BOOTTIME). A time of 0 means that the thing was never measured.
type Load struct {
	Clock     time.Duration // the time now, from which ages are reckoned
	CPUMilli  int64         // of the CPUs that are online, in milli-cores
	Memory    int64         // of the machine, in bytes
	Watermark int64         // what the kernel keeps free of it before it reclaims in the background, in bytes
	Runnable  int64         // tasks that run or wait for a CPU
	Node      Usage         // of the whole machine
	Stolen    int64         `json:",omitzero"` // of its CPUs, what the hypervisor gave to others, in milli-cores; measured with Node.CPU, and not in it
	Classes   [3]Usage      // of the directories of the kubelet's classes: that of Guaranteed holds all pods
	Pods      []PodUsage    // that have a cgroup, ordered by UID
	Inside    []InsideUsage `json:",omitempty"` // of containers that their quota may stop, ordered by UID and name
}

// Usage is what a cgroup, or the machine, used.
type Usage struct {
	CPU      CPUUsage
	Memory   MemoryUsage
	Pressure Pressure
	Delay    Delay
}

// CPUUsage is what was used between two measurements, which are usually a second apart. A counter that went backwards, a
// group made anew and a suspended machine leave a gap: the old values stay with their time.
type CPUUsage struct {
	At        time.Duration // of the later measurement
	Milli     int64         // in milli-cores, the mean over the time between
	Periods   int64         // CFS periods in which the group ran, in the time between; 0: it has no quota
	Throttled int64         // those of them in which it was stopped by its quota
}

// MemoryUsage is what was in use at a time, in bytes.
type MemoryUsage struct {
	At           time.Duration
	WorkingSet   int64 // everything but InactiveFile: what the kubelet and kubectl top call usage
	Anon         int64 // memory of processes, without that of tmpfs
	ActiveFile   int64 // page cache used more than once
	InactiveFile int64 // page cache that the kernel takes away first
}

// Pressure is for how much of the time between two measurements tasks waited for something, in thousandths (the kernel's
// PSI). Where the kernel has none of it, At is 0.
type Pressure struct {
	At     time.Duration
	CPU    Stall
	Memory Stall
	IO     Stall
}

// Stall is how long tasks stood still, in thousandths of the time.
type Stall struct {
	Some int64 // at least one waited
	Full int64 // all waited at once
}

// Delay is for how much of the time between two looks, which are usually two seconds apart, tasks were ready to run and did not: added
// up over them, 1000 thousandths at most. It stands in for the pressure of a pod where the kernel has none; At is 0 where it has, or
// nobody looks.
//
// The kernel tells when a task ceases to wait. What it waited for before the first of the two looks is in the ones after, for five
// seconds at most.
type Delay struct {
	At       time.Duration // of the later look
	Permille int64
	Stopped  int64 // in how many of the CFS periods in the same time a quota stopped the pod, in thousandths
}

// PodUsage is what one pod used.
type PodUsage struct {
	UID string // as in the pod's cgroup
	New bool   // its cgroup was made since the measurement before
	Usage
}

// InsideUsage is what one container used of the CPUs.
type InsideUsage struct {
	UID  string // of the pod, as in its cgroup
	Name string // of the container's directory
	CPUUsage
}

// Container returns what a container used; nil if that is not measured.
func (l *Load) Container(uid, name string) *CPUUsage {
	i := sort.Search(len(l.Inside), func(i int) bool {
		u := &l.Inside[i]
		return u.UID > uid || u.UID == uid && u.Name >= name
	})
	if i == len(l.Inside) || l.Inside[i].UID != uid || l.Inside[i].Name != name {
		return nil
	}
	return &l.Inside[i].CPUUsage
}

// Age returns how long ago a time of this load was; a time of 0 was never.
func (l *Load) Age(at time.Duration) time.Duration {
	if at == 0 {
		return l.Clock
	}
	return max(l.Clock-at, 0)
}

// Pod returns what a pod used; nil if it has no cgroup.
func (l *Load) Pod(uid string) *PodUsage {
	i := sort.Search(len(l.Pods), func(i int) bool { return l.Pods[i].UID >= uid })
	if i == len(l.Pods) || l.Pods[i].UID != uid {
		return nil
	}
	return &l.Pods[i]
}

// MarshalJSON writes the usage as a row of numbers, without the zeros at its end: every round of the journal has that of
// every pod.
func (u Usage) MarshalJSON() ([]byte, error) {
	row := u.row()
	n := len(row)
	for n > 0 && *row[n-1] == 0 {
		n--
	}
	return json.Marshal(row[:n])
}

// UnmarshalJSON reads what [Usage.MarshalJSON] wrote.
func (u *Usage) UnmarshalJSON(text []byte) error {
	var numbers []int64
	if err := json.Unmarshal(text, &numbers); err != nil {
		return fmt.Errorf("reading what was used: %w", err)
	}
	*u = Usage{}
	row := u.row()
	if len(numbers) > len(row) {
		return fmt.Errorf("reading what was used: %d numbers, not %d", len(numbers), len(row))
	}
	for i, n := range numbers {
		*row[i] = n
	}
	return nil
}

// row returns all numbers of a usage in the order in which they are written.
func (u *Usage) row() [19]*int64 {
	return [...]*int64{
		(*int64)(&u.CPU.At), &u.CPU.Milli, (*int64)(&u.Memory.At), &u.Memory.WorkingSet, &u.Memory.Anon, &u.Memory.ActiveFile, &u.Memory.InactiveFile,
		&u.CPU.Periods, &u.CPU.Throttled,
		(*int64)(&u.Pressure.At), &u.Pressure.CPU.Some, &u.Pressure.CPU.Full, &u.Pressure.Memory.Some, &u.Pressure.Memory.Full, &u.Pressure.IO.Some, &u.Pressure.IO.Full,
		(*int64)(&u.Delay.At), &u.Delay.Permille, &u.Delay.Stopped,
	}
}

// podUsage is how a [PodUsage] is written: what is embedded would otherwise be all of it.
type podUsage struct {
	UID   string
	New   bool `json:",omitempty"`
	Usage Usage
}

// MarshalJSON writes the pod with its row of numbers.
func (p PodUsage) MarshalJSON() ([]byte, error) { return json.Marshal(podUsage{p.UID, p.New, p.Usage}) }

// UnmarshalJSON reads what [PodUsage.MarshalJSON] wrote.
func (p *PodUsage) UnmarshalJSON(text []byte) error {
	var read podUsage
	if err := json.Unmarshal(text, &read); err != nil {
		return err
	}
	*p = PodUsage{UID: read.UID, New: read.New, Usage: read.Usage}
	return nil
}
