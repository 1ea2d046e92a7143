package reference

import (
	"testing"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/fixture"
)

// realMachines is where the tests of reading topologies have theirs; the README there says where they are from.
const realMachines = "../../internal/observe/host/testdata/topology"

// machines returns the machines of the comparison by their names.
func machines(t *testing.T) map[string]*model.Topology {
	all, err := fixture.Topologies(realMachines)
	if err != nil {
		t.Fatal(err)
	}
	// What follows has the shapes of the topologies in pkg/kubelet/cm/cpumanager/policy_test.go of Kubernetes 1.36, in
	// which the kubelet's choices are documented by example. Two more of them are among the real machines: xeon-snc,
	// epyc-nps4.
	all["kubelet: single socket, SMT"] = regular(1, 1, 1, 4, 2)
	all["kubelet: two sockets in turn, SMT"] = parse(t,
		"socket 0 node 0 L3 0: 0(0,6) 2(2,8) 4(4,10)\nsocket 1 node 1 L3 1: 1(1,7) 3(3,9) 5(5,11)\n")
	all["kubelet: two sockets, no SMT"] = regular(2, 1, 1, 4, 1)
	all["kubelet: three sockets, the second first, SMT"] = parse(t,
		"socket 1 node 1 L3 0: 0(0-1) 2(2-3) 4(4-5)\nsocket 0 node 0 L3 6: 6(6-7) 8(8-9) 10(10-11)\nsocket 2 node 2 L3 "+
			"12: 12(12-13) 14(14-15) 16(16-17)\n")
	all["kubelet: four sockets, four threads a core"] = regular(4, 1, 1, 18, 4)
	all["kubelet: two sockets of two nodes, SMT"] = regular(2, 2, 1, 10, 2)
	all["kubelet: four sockets in two nodes, SMT"] = parse(t,
		"socket 0 node 0 L3 0: 0(0,16) 1(1,17) 2(2,18) 3(3,19)\nsocket 1 node 0 L3 4: 4(4,20) 5(5,21) 6(6,22) 7(7,23)\n"+
			"socket 2 node 1 L3 8: 8(8,24) 9(9,25) 10(10,26) 11(11,27)\nsocket 3 node 1 L3 12: 12(12,28) 13(13,29) 14(14,30) "+
			"15(15,31)\n")
	all["kubelet: two sockets in one node, two caches each"] = parse(t,
		"socket 0 node 0 L3 0: each alone 0-3\nsocket 0 node 0 L3 4: each alone 4-7\nsocket 1 node 0 L3 8: each alone "+
			"8-11\nsocket 1 node 0 L3 12: each alone 12-15\n")
	all["kubelet: one socket of two nodes of two caches"] = regular(1, 2, 2, 4, 1)
	all["kubelet: one socket of two caches, SMT"] = regular(1, 1, 2, 4, 2)
	all["kubelet: one socket of sixteen caches, SMT"] = regular(1, 1, 16, 4, 2)
	all["kubelet: two sockets of two nodes of six caches"] = regular(2, 2, 6, 8, 1)
	// half as many cores: the kubelet takes long
	all["kubelet: two sockets of twelve caches, SMT"] = regular(2, 1, 12, 4, 2)
	return all
}

// regular returns a machine of so many sockets, with so many nodes each, and so on down to the threads of a core, whose
// numbers are one for each core of the machine apart.
func regular(sockets, nodes, caches, cores, threads int) *model.Topology {
	top := &model.Topology{}
	all := sockets * nodes * caches * cores
	for id := range all * threads {
		core := id % all
		cache := core / cores
		top.CPUs = append(top.CPUs, model.CPU{
			ID: id, Socket: cache / caches / nodes, Node: cache / caches, L3: cache * cores, Core: core,
		})
	}
	return top
}

// parse reads a machine as the tests of reading topologies write it down.
func parse(t *testing.T, text string) *model.Topology {
	t.Helper()
	top, err := fixture.Topology(text)
	if err != nil {
		t.Fatal(err)
	}
	return top
}
