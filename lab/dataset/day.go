package dataset

import (
	"fmt"

	"github.com/waterline-io/waterline/internal/sim/trace"
)

const (
	daySteps = 24 * 3600 / trace.Step
	// wholeDay is the least number of values in a whole day. On Alibaba's machines some are missing on every day.
	wholeDay = daySteps * 9 / 10
)

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

// Generate returns a machine with generated use and a limit of 100.
func Generate(s trace.Shape, seed uint64) Machine {
	m := Machine{Name: "generated", Limits: []float64{100}, Parts: [][]float64{trace.Generate(s, seed)}}
	for i := range m.Parts[0] {
		m.Times = append(m.Times, int64(i)*trace.Step)
	}
	return m
}

// span is a whole day: the values with the indexes from first to before last.
type span struct {
	begins      int64 // second of the trace
	first, last int
}

// wholeDays returns the whole days of the machine. A day starts at a multiple of 24 hours. It is whole if nine in ten
// of its steps of [trace.Step] have a value.
func (m *Machine) wholeDays() []span {
	var days []span
	for first := 0; first < len(m.Times); {
		day, last := m.Times[first]/(daySteps*trace.Step), first
		for last < len(m.Times) && m.Times[last]/(daySteps*trace.Step) == day {
			last++
		}
		if steps(m.Times[first:last]) >= wholeDay {
			days = append(days, span{day * daySteps * trace.Step, first, last})
		}
		first = last
	}
	return days
}

// steps returns the number of steps of [trace.Step] in which one of the times is. Times rise.
func steps(times []int64) int {
	n, last := 0, int64(-1)
	for _, at := range times {
		if at/trace.Step != last {
			n, last = n+1, at/trace.Step
		}
	}
	return n
}

// days returns the number of days with values, whole or not.
func (m *Machine) days() int {
	n, last := 0, int64(-1)
	for _, at := range m.Times {
		if day := at / (daySteps * trace.Step); day != last {
			n, last = n+1, day
		}
	}
	return n
}

// day returns the nth whole day, from 1.
func (m *Machine) day(n int) (span, error) {
	days := m.wholeDays()
	if n < 1 || n > len(days) {
		return span{}, fmt.Errorf("machine %s has %d whole days, and no day %d", m.Name, len(days), n)
	}
	return days[n-1], nil
}

// Day returns the use of the machine on its nth whole day, from 1, in values of [trace.Step]. A missing value repeats
// the one before, or the first of the day if there is none before.
func (m *Machine) Day(n int) ([]float64, error) {
	d, err := m.day(n)
	if err != nil {
		return nil, err
	}
	return fill(m.Times[d.first:d.last], m.Total()[d.first:d.last], trace.Step), nil
}

// DayBegins returns the second of the trace at which the nth whole day begins, from 1.
func (m *Machine) DayBegins(n int) (int64, error) {
	d, err := m.day(n)
	return d.begins, err
}

// Grids returns the whole days of each part that has a limit above 0. Values are a minute long if the machine has more
// of them than five-minute steps.
func (m *Machine) Grids() []trace.Grid {
	days := m.wholeDays()
	step := int64(trace.Step)
	for _, d := range days {
		if d.last-d.first > 2*daySteps {
			step = 60
		}
	}
	var all []trace.Grid
	for i, part := range m.Parts {
		if m.Limits[i] <= 0 || len(days) == 0 {
			continue
		}
		g := trace.Grid{Name: m.Name, Limit: m.Limits[i], Step: step, Left: m.days() - len(days)}
		if len(m.Parts) > 1 {
			g.Name = fmt.Sprintf("%s/%d", m.Name, i)
		}
		for _, d := range days {
			values := fill(m.Times[d.first:d.last], part[d.first:d.last], step)
			shares := make([]float32, len(values))
			for k, v := range values {
				if shares[k] = float32(v / g.Limit); v > g.Limit {
					shares[k] = 1
					g.Over++
				}
			}
			g.Days = append(g.Days, shares)
			g.Holes += max(len(values)-(d.last-d.first), 0)
		}
		all = append(all, g)
	}
	return all
}

// fill returns a value for each step of a day, some of which may be missing in values.
func fill(times []int64, values []float64, step int64) []float64 {
	const day = daySteps * trace.Step
	all, next := make([]float64, day/step), 0
	for i := range all {
		for next < len(times)-1 && times[next+1]%day/step <= int64(i) {
			next++
		}
		all[i] = values[next]
	}
	return all
}
