package model

import "time"

// Observe is what a plan needs observed from now on. The agent observes that and nothing beyond it, so that the rules,
// not the agent, know what they depend on.
type Observe struct {
	Load      bool     // the node's load, each second
	Topology  bool     // the machine's CPUs, cores, caches and NUMA nodes
	MemoryQoS bool     // whether containers were made by a kubelet with MemoryQoS
	Pods      []Detail // of pods that need more than the others, ordered by UID
	// Online pods, and groups of the node's own services, whose waiting for CPUs is sampled, ordered by UID, and the time
	// between two samples; services are sampled once a second at most.
	Waits      []WaitMark    `json:",omitempty"`
	WaitsEvery time.Duration `json:",omitempty"`
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
	if d := FindByUID(details, uid, func(d *Detail) string { return d.UID }); d != nil {
		return *d
	}
	return Detail{}
}
