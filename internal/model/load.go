package model

import (
	"encoding/json"
	"fmt"
	"time"
)

// Load is one measurement of a node. The meter reuses the value: it is valid until the next measurement.
//
// Times are on the machine's boot clock (CLOCK_BOOTTIME), which includes suspension and cannot be set. A time of 0
// means never measured.
type Load struct {
	Clock     time.Duration // current time; ages are relative to it
	CPUMilli  int64         // capacity of the online CPUs, in milli-cores
	Memory    int64         // of the machine, in bytes
	Watermark int64         // free memory below which the kernel reclaims in the background, in bytes
	Runnable  int64         // tasks that run or wait for a CPU
	Node      Usage         // whole machine
	// Stolen is CPU time that the hypervisor gave to other machines, in milli-cores. It is measured with Node.CPU and
	// is not part of it.
	Stolen  int64         `json:",omitzero"`
	Classes [3]Usage      // of the cgroups of the kubelet's QoS classes; that of Guaranteed contains all pods
	Pods    []PodUsage    // with a cgroup, ordered by UID
	Inside  []InsideUsage `json:",omitempty"` // of containers with a quota, ordered by UID and name
}

// Usage is the measured usage of a cgroup or of the machine.
type Usage struct {
	CPU      CPUUsage
	Memory   MemoryUsage
	Pressure Pressure
}

// CPUUsage is the CPU usage between two measurements, usually one second apart. If a counter went backwards, the
// cgroup was recreated or the machine was suspended, the interval is skipped: the old values stay with their old
// time.
type CPUUsage struct {
	At        time.Duration // time of the later measurement
	Milli     int64         // mean over the interval, in milli-cores
	Periods   int64         // CFS periods in which the group ran during the interval; 0: it has no quota
	Throttled int64         // periods in which the quota throttled the group
}

// MemoryUsage is the memory in use, in bytes.
type MemoryUsage struct {
	At           time.Duration
	WorkingSet   int64 // everything except InactiveFile: the kubelet and kubectl top call it usage
	Anon         int64 // anonymous memory of processes, without tmpfs
	ActiveFile   int64 // page cache used more than once
	InactiveFile int64 // page cache that the kernel reclaims first
}

// Pressure is the fraction of time between two measurements in which tasks waited for a resource (the kernel's PSI).
// At is 0 if the kernel does not provide it.
type Pressure struct {
	At     time.Duration
	CPU    Stall
	Memory Stall
	IO     Stall
}

// Stall is the fraction of time in which tasks stalled, in thousandths.
type Stall struct {
	Some int64 // at least one task waited
	Full int64 // all tasks waited at once
}

// PodUsage is the measured usage of one pod.
type PodUsage struct {
	UID string // as in the pod's cgroup
	New bool   // the cgroup was created after the previous measurement
	Usage
}

// InsideUsage is the measured CPU usage of one container.
type InsideUsage struct {
	UID  string // of the pod, as in its cgroup
	Name string // of the container's directory
	CPUUsage
}

// Container returns the CPU usage of a container; nil if it is not measured.
func (l *Load) Container(uid, name string) *CPUUsage {
	inside := l.inside(uid)
	for i := range inside {
		if inside[i].Name == name {
			return &inside[i].CPUUsage
		}
	}
	return nil
}

// inside returns the CPU usage of a pod's containers that are measured.
func (l *Load) inside(uid string) []InsideUsage {
	return AllByUID(l.Inside, uid, func(u *InsideUsage) string { return u.UID })
}

// Age returns the age of a time of this load. Something never measured (time 0) is as old as the clock.
func (l *Load) Age(at time.Duration) time.Duration {
	if at == 0 {
		return l.Clock
	}
	return max(l.Clock-at, 0)
}

// Pod returns the usage of a pod; nil if the pod has no cgroup.
func (l *Load) Pod(uid string) *PodUsage {
	return FindByUID(l.Pods, uid, func(u *PodUsage) string { return u.UID })
}

// Uses returns the CPU use of a pod in milli-cores; 0 if it is not measured.
func (l *Load) Uses(uid string) int64 {
	if u := l.Pod(uid); u != nil {
		return u.CPU.Milli
	}
	return 0
}

// Throttled returns the part of the periods, in thousandths, in which its own quota throttled a pod, or that of one of
// its containers. Only what was measured within a time counts. The quota of the pod may be larger than each
// container's, because it is their sum. Containers that use less than half of what the pod uses do not count: the
// others may wait for batch.
func (l *Load) Throttled(pod *PodUsage, within time.Duration) int64 {
	most := int64(0)
	if l.Age(pod.CPU.At) <= within {
		most = pod.CPU.throttled()
	}
	for _, c := range l.inside(pod.UID) {
		if l.Age(c.At) <= within && 2*c.Milli >= pod.CPU.Milli {
			most = max(most, c.throttled())
		}
	}
	return most
}

// throttled returns the part of the periods in which the quota throttled the group, in thousandths.
func (u *CPUUsage) throttled() int64 {
	if u.Throttled <= 0 {
		return 0
	}
	return min(u.Throttled*1000/max(u.Periods, 1), 1000)
}

// MarshalJSON encodes the usage as an array of numbers without trailing zeros. Every round of the journal contains
// one array per pod.
func (u Usage) MarshalJSON() ([]byte, error) {
	row := u.row()
	n := len(row)
	for n > 0 && *row[n-1] == 0 {
		n--
	}
	return json.Marshal(row[:n])
}

// UnmarshalJSON decodes the output of [Usage.MarshalJSON].
func (u *Usage) UnmarshalJSON(text []byte) error {
	var numbers []int64
	if err := json.Unmarshal(text, &numbers); err != nil {
		return fmt.Errorf("reading what was used: %w", err)
	}
	*u = Usage{}
	row := u.row()
	// Journals of agents that measured run-queue delay here have three further numbers.
	if len(numbers) > len(row)+3 {
		return fmt.Errorf("reading what was used: %d numbers, not %d", len(numbers), len(row))
	}
	for i, n := range numbers[:min(len(numbers), len(row))] {
		*row[i] = n
	}
	return nil
}

// row returns pointers to all numbers of a usage in the order of their encoding.
func (u *Usage) row() [16]*int64 {
	return [...]*int64{
		(*int64)(&u.CPU.At), &u.CPU.Milli,
		(*int64)(&u.Memory.At), &u.Memory.WorkingSet, &u.Memory.Anon, &u.Memory.ActiveFile, &u.Memory.InactiveFile,
		&u.CPU.Periods, &u.CPU.Throttled,
		(*int64)(&u.Pressure.At), &u.Pressure.CPU.Some, &u.Pressure.CPU.Full,
		&u.Pressure.Memory.Some, &u.Pressure.Memory.Full, &u.Pressure.IO.Some, &u.Pressure.IO.Full,
	}
}

// podUsage is the JSON form of [PodUsage]. Without it, the embedded Usage's MarshalJSON would encode the whole
// PodUsage.
type podUsage struct {
	UID   string
	New   bool `json:",omitempty"`
	Usage Usage
}

// MarshalJSON encodes the pod with its array of numbers.
func (p PodUsage) MarshalJSON() ([]byte, error) { return json.Marshal(podUsage{p.UID, p.New, p.Usage}) }

// UnmarshalJSON decodes the output of [PodUsage.MarshalJSON].
func (p *PodUsage) UnmarshalJSON(text []byte) error {
	var read podUsage
	if err := json.Unmarshal(text, &read); err != nil {
		return err
	}
	*p = PodUsage{UID: read.UID, New: read.New, Usage: read.Usage}
	return nil
}
