package model

// RuntimeContainer is a container as the container runtime describes it.
type RuntimeContainer struct {
	PodUID    string // as in the pod's cgroup
	Namespace string
	Pod       string
	Name      string
	ID        string // of this instance
	Dir       string // its cgroup, relative to the root of the hierarchy, without a leading slash; "" if unknown
	Update    bool   // the container already runs, and the runtime writes all of its settings again
	Static    bool   // its pod is a static pod: the kubelet has it from a file or a URL, and the API may show it late

	// CPUs and Mems are the runtime's own settings. At creation they are empty, unless the kubelet's static policy or
	// another plugin has set them.
	CPUs, Mems string
	OOMScore   int // the runtime's own setting, which the kubelet chose; also 0 if the runtime does not report it
}

// Placement is the set of CPUs and NUMA nodes of a container, as kernel lists such as "0-3,8", and its
// oom_score_adj. For a zero value the runtime's own setting stays.
type Placement struct {
	CPUs     string
	Mems     string // NUMA nodes
	OOMScore int    // oom_score_adj of its first process, -1000 to 1000; only used at creation
}
