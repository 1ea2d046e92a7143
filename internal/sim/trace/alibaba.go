package trace

import (
	"maps"
	"slices"
)

// What a machine of Alibaba's must have to be scored: five days of values, and something to do.
const (
	alibabaValues = 1500
	alibabaMean   = 15 // percent
)

// mean is a sum on its way to a mean.
type mean struct {
	sum   float64
	count int
}

// alibaba reads machine_usage of clusterdata v2018: the CPU of whole machines in percent.
func alibaba(r *rows) ([]Machine, error) {
	columns, err := r.columns("machine_id", "time_s", "cpu_util_percent")
	if err != nil {
		return nil, err
	}
	machines := map[string]map[int64]mean{}
	for r.next() {
		id, err := r.text(columns[0])
		if err != nil {
			return nil, err
		}
		at, err := r.seconds(columns[1])
		if err != nil {
			return nil, err
		}
		if cell, err := r.text(columns[2]); err != nil {
			return nil, err
		} else if cell == "" {
			continue // the machine was not measured then
		}
		v, err := r.number(columns[2])
		if err != nil {
			return nil, err
		}
		if machines[id] == nil {
			machines[id] = map[int64]mean{}
		}
		if err := addMean(r, machines[id], at/Step, v); err != nil {
			return nil, err
		}
	}
	if err := r.err(); err != nil {
		return nil, err
	}
	var all []Machine
	for _, id := range slices.Sorted(maps.Keys(machines)) {
		m := meanMachine(r.label(id), machines[id])
		m.Limits = []float64{100}
		sum := 0.0
		for _, v := range m.Parts[0] {
			sum += v
		}
		if n := len(m.Times); n >= alibabaValues && sum/float64(n) >= alibabaMean {
			all = append(all, m)
		}
	}
	return all, nil
}

// addMean adds a value to the mean of a step.
func addMean(r *rows, to map[int64]mean, step int64, v float64) error {
	m, exists := to[step]
	if !exists {
		if err := r.keep(); err != nil {
			return err
		}
	}
	to[step] = mean{m.sum + v, m.count + 1}
	return nil
}

// meanMachine makes a machine of one part from the means of its steps.
func meanMachine(name string, means map[int64]mean) Machine {
	m := Machine{Name: name, Parts: make([][]float64, 1)}
	for _, step := range slices.Sorted(maps.Keys(means)) {
		m.Times = append(m.Times, step*Step)
		m.Parts[0] = append(m.Parts[0], means[step].sum/float64(means[step].count))
	}
	return m
}
