package model

// Snapshot is what the API server, or a directory of manifests, shows of one node.
type Snapshot struct {
	// Ordered by UID, which two pods share if one is a forged mirror pod. The pods never change afterwards.
	Pods  []*Pod
	Known bool // the first complete lists have arrived
	NodeInfo
	Reported  bool            // a NodeReport of the node exists
	Withdrawn bool            // the manager withdrew the node's offer
	Policies  []ClusterPolicy // of the cluster, ordered by name
}

// NodeInfo is the part of a Node object that decisions depend on.
type NodeInfo struct {
	UID         string
	Labels      map[string]string
	Paused      bool // by an annotation
	Capacity    Amount
	Allocatable Amount      // to pods
	Published   []Published // published amounts, in the order of [NodeResources]
}

// CPUPool is the answer of a kubelet with CPU manager policy static about its CPUs.
type CPUPool struct {
	Allocatable CPUSet          // CPUs that it may allocate: all but the reserved ones
	Taken       CPUSet          // the part of Allocatable that containers have exclusively
	Pods        map[string]bool // namespace/name of each pod that the answer covers
}
