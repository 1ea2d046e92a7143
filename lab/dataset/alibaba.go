package dataset

import (
	"maps"
	"slices"
)

// A machine of Alibaba's trace is used if it has five days of values and this mean CPU use.
const (
	alibabaSteps = 1500 // of five minutes
	alibabaMean  = 15   // percent
)

// mean is the sum and the number of the values so far.
type mean struct {
	sum   float64
	count int
}

// means are the means by step.
type means map[int64]mean

// alibaba reads machine_usage of clusterdata v2018: CPU and memory use of whole machines, in percent.
func alibaba(r *rows) ([]Machine, error) {
	columns, err := r.columns("machine_id", "time_s", "cpu_util_percent")
	if err != nil {
		return nil, err
	}
	memory := slices.Index(r.header, "mem_util_percent")
	machines, memories := map[string]means{}, map[string]means{}
	err = r.each(func() error {
		id, err := r.text(columns[0])
		if err != nil {
			return err
		}
		at, err := r.seconds(columns[1])
		if err != nil {
			return err
		}
		if machines[id] == nil {
			machines[id], memories[id] = means{}, means{}
		}
		if err := addCell(r, machines[id], at, columns[2]); err != nil || memory < 0 {
			return err
		}
		return addCell(r, memories[id], at, memory)
	})
	if err != nil {
		return nil, err
	}
	var all []Machine
	for _, id := range slices.Sorted(maps.Keys(machines)) {
		m := meanMachine(r, id, machines[id])
		m.Limits = []float64{100}
		m.Memory = alignMeans(r, m.Times, memories[id])
		sum := 0.0
		for _, v := range m.Parts[0] {
			sum += v
		}
		if steps(m.Times) >= alibabaSteps && sum/float64(len(m.Times)) >= alibabaMean {
			all = append(all, m)
		}
	}
	return all, nil
}

// addCell adds the number in a cell to the mean of its step. An empty cell means that nothing was measured.
func addCell(r *rows, to means, at int64, column int) error {
	if cell, err := r.text(column); err != nil || cell == "" {
		return err
	}
	v, err := r.number(column)
	if err != nil {
		return err
	}
	return addMean(r, to, at/r.step, v)
}

// addMean adds a value to the mean of a step.
func addMean(r *rows, to means, step int64, v float64) error {
	m, exists := to[step]
	if !exists {
		if err := r.keep(); err != nil {
			return err
		}
	}
	to[step] = mean{m.sum + v, m.count + 1}
	return nil
}

// meanMachine returns a machine with one part, whose values are the means.
func meanMachine(r *rows, name string, of means) Machine {
	m := Machine{Name: r.label(name), Parts: make([][]float64, 1)}
	for _, step := range slices.Sorted(maps.Keys(of)) {
		m.Times = append(m.Times, step*r.step)
		m.Parts[0] = append(m.Parts[0], of[step].sum/float64(of[step].count))
	}
	return m
}

// alignMeans returns the means at the given times. Where a mean is missing it repeats the one before. It
// returns nil if there are no means.
func alignMeans(r *rows, times []int64, of means) []float64 {
	if len(of) == 0 {
		return nil
	}
	values, last := make([]float64, 0, len(times)), 0.0
	for _, at := range times {
		if m, exists := of[at/r.step]; exists {
			last = m.sum / float64(m.count)
		}
		values = append(values, last)
	}
	return values
}
