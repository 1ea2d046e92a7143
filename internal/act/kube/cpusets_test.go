package kube

import (
	"encoding/json"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
	observe "github.com/waterline-io/waterline/internal/observe/kube"
	"github.com/waterline-io/waterline/test/fixture"
)

// TestCPUSetReport writes the room of machines of many kinds into a report, and reads it again: the free CPUs, and
// which CPUs share a core and a NUMA node.
func TestCPUSetReport(t *testing.T) {
	machines, err := fixture.Topologies("../../observe/host/testdata/topology")
	if err != nil {
		t.Fatal(err)
	}
	machines["256 CPUs, siblings apart"] = machine(256, func(id int) int { return id % 128 })
	machines["256 CPUs, siblings adjacent"] = machine(256, func(id int) int { return id - id%2 })
	machines["cores in any order"] = machine(16, func(id int) int { return []int{0, 1, 2, 3, 3, 1, 0, 2}[id%8] + id/8*8 })
	r := rand.New(rand.NewPCG(1, 1))
	for name, topology := range machines {
		t.Run(name, func(t *testing.T) {
			room := &model.CPURoom{Exclusive: r.IntN(9), Topology: topology}
			for _, c := range topology.CPUs {
				if r.IntN(3) > 0 {
					room.Free.Add(c.ID)
				}
			}
			report := cpuSetReport(room)
			text, err := json.Marshal(report)
			if err != nil {
				t.Fatal(err)
			}
			var read v1alpha1.CPUSetReport
			if err := json.Unmarshal(text, &read); err != nil {
				t.Fatal(err)
			}
			got, err := observe.CPURoom(&read)
			if err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			if got.Free != room.Free || got.Exclusive != room.Exclusive {
				t.Errorf("%s is read as %s, %d exclusive", text, got.Free, got.Exclusive)
			}
			if d := cmp.Diff(places(topology), places(got.Topology)); d != "" {
				t.Errorf("%s (-written +read):\n%s", text, d)
			}
			if len(text) > 3000 {
				t.Errorf("%d CPUs need %d bytes", len(topology.CPUs), len(text))
			}
			t.Logf("%d CPUs: %d bytes", len(topology.CPUs), len(text))
		})
	}
	groups := cpuSetReport(&model.CPURoom{Topology: machines["256 CPUs, siblings apart"]}).NUMANodes
	if len(groups) != 2 || groups[1].ID != 1 || len(groups[1].Cores) != 1 || groups[1].Cores[0] != "64-127/192-255" {
		t.Errorf("NUMA nodes %+v", groups)
	}
}

// machine returns a machine of two NUMA nodes, whose cores are given by CPU.
func machine(cpus int, core func(id int) int) *model.Topology {
	t := &model.Topology{Nodes: []model.NUMANode{{ID: 0}, {ID: 1}}}
	first := map[int]int{}
	for id := range cpus {
		c := core(id)
		if _, known := first[c]; !known {
			first[c] = id
		}
		t.CPUs = append(t.CPUs, model.CPU{ID: id, Core: first[c], Node: min(1, c/(cpus/4))})
	}
	return t
}

// places returns the NUMA node and the core of each CPU.
func places(t *model.Topology) map[int][2]int {
	all := map[int][2]int{}
	for _, c := range t.CPUs {
		all[c.ID] = [2]int{c.Node, c.Core}
	}
	return all
}
