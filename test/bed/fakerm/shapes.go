package fakerm

import (
	"fmt"
	"math"
	"net"
	"time"
)

// The answers have every field of the real ones, also those that internal/yarn does not read: reading them is a part of
// a client's cost.

type infoJSON struct {
	ID        int64  `json:"id"`
	Started   int64  `json:"startedOn"`
	State     string `json:"state"`
	HAState   string `json:"haState"`
	Store     string `json:"rmStateStoreName"`
	Version   string `json:"resourceManagerVersion"`
	Build     string `json:"resourceManagerBuildVersion"`
	Built     string `json:"resourceManagerVersionBuiltOn"`
	Hadoop    string `json:"hadoopVersion"`
	Common    string `json:"hadoopBuildVersion"`
	CommonOn  string `json:"hadoopVersionBuiltOn"`
	ZooKeeper string `json:"haZooKeeperConnectionState"`
}

const (
	version = "3.5.0"
	built   = "2026-03-24T17:01Z"
)

func (r *RM) info() infoJSON {
	i := infoJSON{
		ID: r.started.UnixMilli(), Started: r.started.UnixMilli(), State: "STARTED", HAState: "ACTIVE", Version: version,
		Build: version + " (fake)", Built: built, Hadoop: version, Common: version + " (fake)", CommonOn: built,
		Store:     "org.apache.hadoop.yarn.server.resourcemanager.recovery.FileSystemRMStateStore",
		ZooKeeper: "Could not find leader elector. Verify both HA and automatic failover are enabled.",
	}
	if r.faults.Standby {
		i.HAState = "STANDBY"
	}
	return i
}

type labelJSON struct {
	Name      string         `json:"name"`
	Exclusive bool           `json:"exclusivity"`
	Partition *partitionJSON `json:"partitionInfo,omitempty"`
}

type partitionJSON struct {
	Available amountJSON `json:"resourceAvailable"`
}

type amountJSON struct {
	Memory int64     `json:"memory"`
	VCores int64     `json:"vCores"`
	More   partsJSON `json:"resourceInformations"`
}

type partsJSON struct {
	Parts []partJSON `json:"resourceInformation"`
}

type partJSON struct {
	Maximum int64  `json:"maximumAllocation"`
	Minimum int64  `json:"minimumAllocation"`
	Name    string `json:"name"`
	Type    string `json:"resourceType"`
	Units   string `json:"units"`
	Value   int64  `json:"value"`
}

func amount(s Size) amountJSON {
	return amountJSON{s.MemoryMiB, s.VCores, partsJSON{[]partJSON{
		{math.MaxInt64, 0, "memory-mb", "COUNTABLE", "Mi", s.MemoryMiB},
		{math.MaxInt64, 0, "vcores", "COUNTABLE", "", s.VCores},
	}}}
}

type nodeJSON struct {
	Rack              string           `json:"rack"`
	State             string           `json:"state"`
	ID                string           `json:"id"`
	Host              string           `json:"nodeHostName"`
	HTTPAddress       string           `json:"nodeHTTPAddress"`
	HealthUpdate      int64            `json:"lastHealthUpdate"`
	Version           string           `json:"version"`
	Health            string           `json:"healthReport"`
	Containers        int              `json:"numContainers"`
	UsedMemory        int64            `json:"usedMemoryMB"`
	FreeMemory        int64            `json:"availMemoryMB"`
	UsedVCores        int64            `json:"usedVirtualCores"`
	FreeVCores        int64            `json:"availableVirtualCores"`
	MemoryUtilization float64          `json:"memUtilization"`
	CPUUtilization    float64          `json:"cpuUtilization"`
	Opportunistic     int              `json:"numRunningOpportContainers"`
	OpportunisticGB   int              `json:"usedMemoryOpportGB"`
	OpportunisticCPU  int              `json:"usedVirtualCoresOpport"`
	Queued            int              `json:"numQueuedContainers"`
	Labels            []string         `json:"nodeLabels,omitempty"`
	Tags              struct{}         `json:"allocationTags"`
	Utilization       *utilizationJSON `json:"resourceUtilization"`
	Used              amountJSON       `json:"usedResource"`
	Free              amountJSON       `json:"availableResource"`
	Attributes        struct{}         `json:"nodeAttributesInfo"`
	Total             amountJSON       `json:"totalResource"`
}

type utilizationJSON struct {
	NodeMemory        int64   `json:"nodePhysicalMemoryMB"`
	NodeVirtual       int64   `json:"nodeVirtualMemoryMB"`
	NodeCPU           float64 `json:"nodeCPUUsage"`
	ContainersMemory  int64   `json:"aggregatedContainersPhysicalMemoryMB"`
	ContainersVirtual int64   `json:"aggregatedContainersVirtualMemoryMB"`
	ContainersCPU     float64 `json:"containersCPUUsage"`
}

// show returns a node as the ResourceManager shows it.
func (r *RM) show(n *node, now time.Time) nodeJSON {
	used, containers := n.used(), len(n.containers)
	free := n.total.minus(used)
	if now.Before(n.unsettled) || !n.lives() {
		used, free, containers = Size{}, Size{}, 0
	}
	j := nodeJSON{
		Rack: n.rack, State: n.state, ID: n.id, Host: n.host, HealthUpdate: n.checked.UnixMilli(), Version: version,
		Health: n.health, Containers: containers, UsedMemory: used.MemoryMiB, FreeMemory: free.MemoryMiB,
		UsedVCores: used.VCores, FreeVCores: free.VCores, MemoryUtilization: 51.53288, CPUUtilization: 31.656113,
		Utilization: &utilizationJSON{12422, 12422, 0.6331222653388977, 1, 2, 0.5},
		Used:        amount(used), Free: amount(free), Total: amount(n.total),
	}
	if n.lives() {
		j.HTTPAddress = net.JoinHostPort(n.host, webPort)
	}
	if n.label != "" {
		j.Labels = []string{n.label}
	}
	return j
}

type nmJSON struct {
	Health        string `json:"healthReport"`
	Virtual       int64  `json:"totalVmemAllocatedContainersMB"`
	Memory        int64  `json:"totalPmemAllocatedContainersMB"`
	VCores        int64  `json:"totalVCoresAllocatedContainers"`
	ChecksVirtual bool   `json:"vmemCheckEnabled"`
	ChecksMemory  bool   `json:"pmemCheckEnabled"`
	Updated       int64  `json:"lastNodeUpdateTime"`
	Types         string `json:"resourceTypes"`
	Healthy       bool   `json:"nodeHealthy"`
	Version       string `json:"nodeManagerVersion"`
	Build         string `json:"nodeManagerBuildVersion"`
	Built         string `json:"nodeManagerVersionBuiltOn"`
	Hadoop        string `json:"hadoopVersion"`
	HadoopBuild   string `json:"hadoopBuildVersion"`
	HadoopOn      string `json:"hadoopVersionBuiltOn"`
	ID            string `json:"id"`
	Host          string `json:"nodeHostName"`
	Started       int64  `json:"nmStartupTime"`
}

func nodeInfo(n *node, host string) nmJSON {
	return nmJSON{
		Health: n.health, Virtual: n.own.MemoryMiB * 21 / 10, Memory: n.own.MemoryMiB, VCores: n.own.VCores,
		ChecksMemory: true, Updated: n.checked.UnixMilli(), Types: "memory-mb (unit=Mi), vcores", Healthy: n.health == "",
		Version: version, Build: version + " (fake)", Built: built, Hadoop: version, HadoopBuild: version + " (fake)",
		HadoopOn: built, ID: net.JoinHostPort(host, idPort), Host: host, Started: n.boots.UnixMilli(),
	}
}

type containerJSON struct {
	ID            string   `json:"id"`
	State         string   `json:"state"`
	ExitCode      int      `json:"exitCode"`
	Diagnostics   string   `json:"diagnostics"`
	User          string   `json:"user"`
	Memory        int64    `json:"totalMemoryNeededMB"`
	VCores        int64    `json:"totalVCoresNeeded"`
	ExecutionType string   `json:"executionType"`
	LogsLink      string   `json:"containerLogsLink"`
	Node          string   `json:"nodeId"`
	LogFiles      []string `json:"containerLogFiles"`
}

func (r *RM) containerInfo(n *node, i int) containerJSON {
	c := n.containers[i]
	id := fmt.Sprintf("container_%d_0001_01_%06d", r.started.UnixMilli(), i+1)
	return containerJSON{
		ID: id, State: "RUNNING", ExitCode: -1000, User: "batch", Memory: c.size.MemoryMiB, VCores: c.size.VCores,
		ExecutionType: "GUARANTEED", Node: n.id, LogFiles: []string{"prelaunch.out"},
		LogsLink: fmt.Sprintf("http://%s/node/containerlogs/%s/batch", net.JoinHostPort(n.host, webPort), id),
	}
}
