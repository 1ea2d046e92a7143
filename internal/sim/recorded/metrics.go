package recorded

import (
	"fmt"
	"strings"
)

// metric is one way to ask for a quantity. In expr, %s is the user's selector with a comma after it, or nothing; count
// is the series that expr reads.
type metric struct {
	name  string
	count string
	expr  string
}

func (m metric) with(selector string) metric {
	if selector != "" {
		selector += ","
	}
	m.count, m.expr = strings.ReplaceAll(m.count, "%s", selector), strings.ReplaceAll(m.expr, "%s", selector)
	return m
}

// byNode are the labels that may name a node, in different set-ups.
const byNode = "node,kubernetes_node,kubernetes_io_hostname,instance"

// Waits for devices are not use, and the time of guests is in that of users already.
const busyModes = `mode!~"idle|iowait|steal|guest|guest_nice"`

// nodeCPU is CPU in cores.
func nodeCPU() []metric {
	return []metric{
		{
			"node_cpu_seconds_total", `node_cpu_seconds_total{%s` + busyModes + `}`,
			`sum by (` + byNode + `) (max by (` + byNode + `,cpu,mode) (rate(node_cpu_seconds_total{%s` + busyModes + `}[5m])))`,
		},
		{
			"container_cpu_usage_seconds_total of the root cgroup", `container_cpu_usage_seconds_total{%sid="/"}`,
			`max by (` + byNode + `) (rate(container_cpu_usage_seconds_total{%sid="/"}[5m]))`,
		},
		gauge("node_cpu_usage_seconds_total", "max by ("+byNode+") (rate(node_cpu_usage_seconds_total{%s}[5m]))"),
	}
}

// nodeMemory is memory in bytes that cannot be reclaimed without harm.
func nodeMemory() []metric {
	return []metric{
		gauge("node_memory_MemAvailable_bytes",
			"max by ("+byNode+") (node_memory_MemTotal_bytes{%s} - node_memory_MemAvailable_bytes{%s})"),
		{
			"container_memory_working_set_bytes of the root cgroup", `container_memory_working_set_bytes{%sid="/"}`,
			`max by (` + byNode + `) (container_memory_working_set_bytes{%sid="/"})`,
		},
		gauge("node_memory_working_set_bytes", "max by ("+byNode+") (node_memory_working_set_bytes{%s})"),
	}
}

// cpus and memories are capacities, in CPUs and bytes.
func cpus() []metric {
	return []metric{
		stateOf("kube_node_status_capacity", `resource="cpu"`, "node"),
		gauge("machine_cpu_cores", "max by ("+byNode+") (machine_cpu_cores{%s})"),
		{
			"node_cpu_seconds_total", `node_cpu_seconds_total{%smode="idle"}`,
			`count by (` + byNode + `) (max by (` + byNode + `,cpu) (node_cpu_seconds_total{%smode="idle"}))`,
		},
	}
}

func memories() []metric {
	return []metric{
		stateOf("kube_node_status_capacity", `resource="memory"`, "node"),
		gauge("machine_memory_bytes", "max by ("+byNode+") (machine_memory_bytes{%s})"),
		gauge("node_memory_MemTotal_bytes", "max by ("+byNode+") (node_memory_MemTotal_bytes{%s})"),
	}
}

// allocatable is what the kubelet leaves to pods.
func allocatable(resource string) []metric {
	return []metric{stateOf("kube_node_status_allocatable", fmt.Sprintf("resource=%q", resource), "node")}
}

// podCPU is CPU in cores. The kubelet shows containers and the cgroups of whole pods, on one page or on two: the
// maximum counts a container once.
func podCPU() []metric {
	return podUse("container_cpu_usage_seconds_total", "pod_cpu_usage_seconds_total", "rate(", "[5m])")
}

// podMemory is memory in bytes.
func podMemory() []metric {
	return podUse("container_memory_working_set_bytes", "pod_memory_working_set_bytes", "", "")
}

func podUse(container, pod, before, after string) []metric {
	const (
		containers = `{%scontainer!="",container!="POD",pod!=""}`
		pods       = `{%scontainer="",pod!=""}`
	)
	by := "namespace,pod," + byNode
	return []metric{
		{container, container + containers, "sum by (" + by + ") (max by (container," + by + ") (" + before + container +
			containers + after + "))"},
		{container + " of pods", container + pods, "max by (" + by + ") (" + before + container + pods + after + ")"},
		gauge(pod, "max by ("+by+") ("+before+pod+"{%s}"+after+")"),
	}
}

// podRequests are requests, podLimits limits, in CPUs and bytes. Version 1 of kube-state-metrics had other names.
func podRequests(resource, unit string) []metric { return podSpec("requests", resource, unit) }

func podLimits(resource, unit string) []metric { return podSpec("limits", resource, unit) }

func podSpec(what, resource, unit string) []metric {
	of := func(name, matcher string) metric {
		series := name + "{%s" + matcher + "}"
		return metric{name, series,
			"sum by (namespace,pod) (max by (namespace,pod,container) (max_over_time(" + series + "[1h])))"}
	}
	name := "kube_pod_container_resource_" + what
	return []metric{of(name, fmt.Sprintf("resource=%q", resource)), of(name+"_"+resource+"_"+unit, "")}
}

// podInfo is 1 for each pod, with its node and its owner in labels.
func podInfo() []metric {
	return []metric{gauge("kube_pod_info",
		"max by (namespace,pod,node,created_by_kind,created_by_name) (max_over_time(kube_pod_info{%s}[1h]))")}
}

// nodeNames are 1 for each node, with addresses and names in labels.
func nodeNames() []metric {
	return []metric{
		gauge("kube_node_info", "max by (node,internal_ip) (kube_node_info{%s})"),
		gauge("node_uname_info", "max by (nodename,instance) (node_uname_info{%s})"),
	}
}

func gauge(name, expr string) metric { return metric{name, name + "{%s}", expr} }

func stateOf(name, matcher, by string) metric {
	series := name + "{%s" + matcher + "}"
	return metric{name, series, "max by (" + by + ") (" + series + ")"}
}
