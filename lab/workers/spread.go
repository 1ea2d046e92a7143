package workers

import (
	"fmt"

	"github.com/waterline-io/waterline/lab/dataset"
)

// Spread returns a machine for each of n nodes, of which the given day is the one to simulate. Where there are fewer
// machines, each counts again for its next whole days, and its earlier days teach the predictor of that node.
func Spread(machines []dataset.Machine, n, day int) ([]dataset.Machine, error) {
	var all []dataset.Machine
	for shift := 0; len(all) < n; shift++ {
		before := len(all)
		for i := range machines {
			m := &machines[i]
			if _, err := m.Day(day + shift); err != nil || m.Limit() <= 0 || len(all) == n {
				continue
			}
			from, err := m.DayBegins(shift + 1)
			if err != nil {
				return nil, err
			}
			all = append(all, since(m, from))
		}
		if len(all) == before {
			return nil, fmt.Errorf("the traces have %d days that can be simulated after %d days before them, and %d nodes need "+
				"one each", before, day-1, n)
		}
	}
	return all, nil
}

// since returns a machine without what was before a second of its trace.
func since(m *dataset.Machine, from int64) dataset.Machine {
	first := 0
	for first < len(m.Times) && m.Times[first] < from {
		first++
	}
	late := *m
	late.Times, late.Parts = m.Times[first:], nil
	for _, part := range m.Parts {
		late.Parts = append(late.Parts, part[first:])
	}
	if m.Memory != nil {
		late.Memory = m.Memory[first:]
	}
	return late
}
