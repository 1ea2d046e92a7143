package kube

import (
	"fmt"
	"slices"
	"strings"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
)

// CPURoom reads the room of a node for pods that request their own CPUs from its NodeReport; nil if the report has
// none. The topology has NUMA nodes and cores: each node counts as one socket and one cache domain, without memory.
// The error names the field that cannot be read, and has [model.ErrCPUList] in its chain.
func CPURoom(report *v1alpha1.CPUSetReport) (*model.CPURoom, error) {
	if report == nil {
		return nil, nil
	}
	room := &model.CPURoom{Exclusive: int(report.MaxExclusive), Topology: &model.Topology{}}
	var seen model.CPUSet
	for i := range report.NUMANodes {
		n := &report.NUMANodes[i]
		field := fmt.Sprintf("status.cpuSets.numaNodes[%d]", i)
		cpus, err := coresOf(n)
		if err != nil {
			return nil, fmt.Errorf("reading %s.cores: %w", field, err)
		}
		free, err := model.ParseCPUs(n.Free)
		if err != nil {
			return nil, fmt.Errorf("reading %s.free: %w", field, err)
		}
		var all model.CPUSet
		for _, c := range cpus {
			all.Add(c.ID)
		}
		if all.Len() != len(cpus) || all.Overlaps(seen) {
			return nil, fmt.Errorf("reading %s.cores: %w: a CPU is in two cores", field, model.ErrCPUList)
		}
		if !free.Within(all) {
			return nil, fmt.Errorf("reading %s.free: %w: %s is in no core of the node", field, model.ErrCPUList,
				free.Minus(all))
		}
		seen, room.Free = seen.Or(all), room.Free.Or(free)
		room.Topology.CPUs = append(room.Topology.CPUs, cpus...)
		room.Topology.Nodes = append(room.Topology.Nodes, model.NUMANode{ID: int(n.ID)})
	}
	slices.SortFunc(room.Topology.CPUs, func(a, b model.CPU) int { return a.ID - b.ID })
	return room, nil
}

// coresOf reads the cores of a NUMA node.
func coresOf(n *v1alpha1.NUMANodeCPUs) ([]model.CPU, error) {
	var cpus []model.CPU
	for _, group := range n.Cores {
		var first []int // the first thread of each core
		for i, text := range strings.Split(group, "/") {
			list, err := model.ParseCPUs(text)
			switch {
			case err != nil:
				return nil, err
			case list.Empty():
				return nil, fmt.Errorf("%w: %.64q has an empty list", model.ErrCPUList, group)
			case i == 0:
				first = slices.Collect(list.All())
			case list.Len() != len(first):
				return nil, fmt.Errorf("%w: the lists in %.64q have different lengths", model.ErrCPUList, group)
			}
			core := 0
			for id := range list.All() {
				cpus = append(cpus, model.CPU{ID: id, Socket: int(n.ID), Node: int(n.ID), L3: int(n.ID), Core: first[core]})
				core++
			}
		}
	}
	return cpus, nil
}
