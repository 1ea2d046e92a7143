// Package trace has what machines used in the course of days: generated, or read elsewhere.
package trace

// Step is the default length of the time that one value covers, in seconds.
const Step = 300

// Machine is the resource use of one machine.
type Machine struct {
	Name   string
	Times  []int64     // start of each value, in seconds of any epoch, rising by at least a step; may have gaps
	Parts  [][]float64 // use of each part, such as a VM, at each time
	Limits []float64   // limit of each part
	Memory []float64   // memory use at each time, in percent of the machine's memory; nil: not in the trace
}

// Limit returns the sum of the limits of the parts.
func (m *Machine) Limit() float64 {
	sum := 0.0
	for _, l := range m.Limits {
		sum += l
	}
	return sum
}

// Total returns the use of all parts together at each time.
func (m *Machine) Total() []float64 {
	total := make([]float64, len(m.Times))
	for _, part := range m.Parts {
		for i, v := range part {
			total[i] += v
		}
	}
	return total
}
