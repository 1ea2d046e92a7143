package kube

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
)

// cpuSetReport converts the room for pods that request their own CPUs.
func cpuSetReport(room *model.CPURoom) *v1alpha1.CPUSetReport {
	report := &v1alpha1.CPUSetReport{MaxExclusive: int32(room.Exclusive)}
	byNode := map[int][]model.CPU{}
	for _, c := range room.Topology.CPUs {
		byNode[c.Node] = append(byNode[c.Node], c)
	}
	for id, cpus := range byNode {
		var all model.CPUSet
		for _, c := range cpus {
			all.Add(c.ID)
		}
		report.NUMANodes = append(report.NUMANodes, v1alpha1.NUMANodeCPUs{
			ID: int32(id), Free: all.And(room.Free).String(), Cores: coreGroups(cpus),
		})
	}
	slices.SortFunc(report.NUMANodes, func(a, b v1alpha1.NUMANodeCPUs) int { return cmp.Compare(a.ID, b.ID) })
	return report
}

// coreGroups returns the cores of some CPUs as [v1alpha1.NUMANodeCPUs] has them. A list orders its CPUs, so a core
// whose threads are not all after those of the core before it begins another group.
func coreGroups(cpus []model.CPU) []string {
	cores := map[int][]int{}
	for _, c := range cpus { // ordered by ID
		cores[c.Core] = append(cores[c.Core], c.ID)
	}
	ordered := slices.SortedFunc(maps.Values(cores), func(a, b []int) int {
		return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a[0], b[0]))
	})
	var groups []string
	var lists []model.CPUSet
	end := func() {
		var text []string
		for _, list := range lists {
			text = append(text, list.String())
		}
		if len(lists) > 0 {
			groups = append(groups, strings.Join(text, "/"))
		}
	}
	for i, threads := range ordered {
		if i == 0 || !follows(ordered[i-1], threads) {
			end()
			lists = make([]model.CPUSet, len(threads))
		}
		for k, id := range threads {
			lists[k].Add(id)
		}
	}
	end()
	return groups
}

// follows reports whether a core can be in one group with the core before it.
func follows(before, threads []int) bool {
	return slices.EqualFunc(before, threads, func(a, b int) bool { return a <= b })
}
