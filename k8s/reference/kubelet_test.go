package reference

import (
	"slices"
	"testing"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/state"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/topology"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/utils/cpuset"

	"github.com/waterline-io/waterline/internal/model"
)

// kubelet is the kubelet's static CPU manager policy on one machine.
type kubelet struct {
	t       *testing.T
	policy  cpumanager.Policy
	manager topologymanager.Policy // nil: no topology manager
	hint    topologymanager.TopologyHint
}

// newKubelet returns a kubelet without reserved CPUs. With aligned, its topology manager says for each request which
// NUMA nodes are best, and the CPUs come from those; without, as by default, it says nothing.
func newKubelet(t *testing.T, machine *model.Topology, aligned bool, options map[string]string) *kubelet {
	described := &topology.CPUTopology{CPUDetails: topology.CPUDetails{}}
	var nodes, sockets, cores, caches model.CPUSet
	for _, c := range machine.CPUs {
		described.CPUDetails[c.ID] = topology.CPUInfo{
			NUMANodeID: c.Node, SocketID: c.Socket, CoreID: c.Core, UncoreCacheID: c.L3,
		}
		nodes.Add(c.Node)
		sockets.Add(c.Socket)
		cores.Add(c.Core)
		caches.Add(c.L3)
	}
	described.NumCPUs, described.NumCores = len(machine.CPUs), cores.Len()
	described.NumSockets, described.NumNUMANodes, described.NumUncoreCache = sockets.Len(), nodes.Len(), caches.Len()
	k := &kubelet{t: t}
	if aligned {
		k.manager = topologymanager.NewBestEffortPolicy(&topologymanager.NUMAInfo{Nodes: slices.Collect(nodes.All())},
			topologymanager.PolicyOptions{})
	}
	policy, err := cpumanager.NewStaticPolicy(logr.Discard(), described, 0, cpuset.New(), k, options)
	if err != nil {
		t.Fatal(err)
	}
	k.policy = policy
	return k
}

// GetAffinity, GetPolicy and Name make a kubelet its own topology manager: the store that its policy asks for hints.
func (k *kubelet) GetAffinity(string, string) topologymanager.TopologyHint { return k.hint }

// GetPolicy returns the topology manager's policy.
func (k *kubelet) GetPolicy() topologymanager.Policy { return k.manager }

// Name names the topology manager.
func (k *kubelet) Name() string { return "reference" }

// take returns which n of the free CPUs the kubelet gives a container.
func (k *kubelet) take(free model.CPUSet, n int) model.CPUSet {
	s := state.NewMemoryState(logr.Discard())
	s.SetDefaultCPUSet(cpuset.New(slices.Collect(free.All())...))
	amount := v1.ResourceList{
		v1.ResourceCPU: *resource.NewQuantity(int64(n), resource.DecimalSI), v1.ResourceMemory: resource.MustParse("1Gi"),
	}
	container := v1.Container{Name: "c", Resources: v1.ResourceRequirements{Requests: amount, Limits: amount}}
	pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{container}}}
	pod.UID = "p"
	if k.manager != nil {
		hints := k.policy.GetTopologyHints(logr.Discard(), s, pod, &container)
		k.hint, _ = k.manager.Merge(logr.Discard(), []map[string][]topologymanager.TopologyHint{hints})
	}
	if err := k.policy.Allocate(logr.Discard(), s, pod, &container); err != nil {
		k.t.Fatalf("the kubelet gives none of %s: %v", free, err)
	}
	given, _ := s.GetCPUSet("p", "c")
	return model.CPUs(given.UnsortedList()...)
}
