package model

import (
	"sort"
	"time"
)

// Observe is what a plan needs observed from now on. The agent observes that and nothing beyond it, so that the rules,
// not the agent, know what they depend on.
type Observe struct {
	Load      bool       // the node's load, each second
	Topology  bool       // the machine's CPUs, cores, caches and NUMA nodes
	MemoryQoS bool       // whether containers were made by a kubelet with MemoryQoS
	Pods      []Detail   // of pods that need more than the others, ordered by UID
	Glances   GlanceMark `json:",omitzero"` // what glances are compared with; the zero value: no glances are needed
	// Cgroups of batch pods outside of class BestEffort, whose use glances count as that of batch.
	Beside []string `json:",omitempty"`
	// Online pods whose waiting for CPUs is sampled, ordered by UID, and the time between two samples.
	Waits      []WaitMark    `json:",omitempty"`
	WaitsEvery time.Duration `json:",omitempty"`
	// UIDs of the online pods whose CPU cycles and instructions are counted each second, in order.
	Cycles []string `json:",omitempty"`
	// Figures of services that are fetched, ordered by UID.
	Services []ServiceTarget `json:",omitempty"`
}

// Detail is what must be observed of one pod beyond its CPU use, which is measured each second, and its memory and
// pressure, which are measured each fifth second.
type Detail struct {
	UID     string // as in the pod's cgroup
	Files   bool   `json:",omitempty"` // the files in its cgroup and its containers' cgroups are watched
	Seconds bool   `json:",omitempty"` // its memory and pressure are measured each second
	CPUs    bool   `json:",omitempty"` // the lists of CPUs of its containers are read
	// CPU use of the pod from which on its containers are measured, in milli-cores; 0: never
	Inside int64 `json:",omitempty"`
}

// FindDetail returns what must be observed of a pod. The details are ordered by UID. A pod that is none of them needs
// nothing beyond the others.
func FindDetail(details []Detail, uid string) Detail {
	i := sort.Search(len(details), func(i int) bool { return details[i].UID >= uid })
	if i == len(details) || details[i].UID != uid {
		return Detail{}
	}
	return details[i]
}

// Glance is a short measurement of CPU use, about 100 ms long, in milli-cores. It reads three counters, and one for
// each batch pod that is not of class BestEffort.
type Glance struct {
	At    time.Duration // of its end; 0: there was none
	Node  int64         // the whole machine
	Pods  int64         // all pods
	Batch int64         // pods of class BestEffort, where batch is, and the batch pods of [Observe.Beside]
}

// GlanceMark is what glances are compared with until the next measurement: CPU use at the last measurement, without
// batch as [Glance] has it, in milli-cores.
type GlanceMark struct {
	At     time.Duration // of the last measurement; 0: there is none
	Pods   int64         // the other pods
	Others int64         // processes outside of pods
	Known  bool          // Others is known
	Noise  int64         // smaller rises are noise
	Spike  int64         // rises up to this are known spikes
	Most   int64         // rises above this need less for batch at once
}

// Exceeded reports whether a glance shows a rise for which batch must get less before the next measurement.
func (m *GlanceMark) Exceeded(g *Glance) bool { return m.At != 0 && m.Rise(g) > m.Most }

// Rise returns by how much the CPU use without batch rose, in milli-cores. Rises within noise, or no higher than a
// known spike, count as zero.
//
// Online pods in class BestEffort are measured each second only: a glance cannot tell them from batch.
func (m *GlanceMark) Rise(g *Glance) int64 {
	if g.At == 0 || m.At == 0 || g.At <= m.At {
		return 0
	}
	rise := max((g.Pods-g.Batch)-m.Pods, 0)
	if m.Known {
		// The kernel counts the machine's idle time in steps of 10 ms, so pods may seem to use more than the machine.
		rise += max(max(g.Node-g.Pods, 0)-m.Others, 0)
	}
	if rise < m.Noise || rise <= m.Spike {
		return 0
	}
	return rise
}
