package trace

import "fmt"

const (
	daySteps = 24 * 3600 / Step
	// wholeDay is the least number of values in a whole day. On Alibaba's machines some are missing on every day.
	wholeDay = daySteps * 9 / 10
)

// span is a whole day: the values with the indexes from first to before last.
type span struct {
	begins      int64 // second of the trace
	first, last int
}

// wholeDays returns the whole days of the machine. A day starts at a multiple of 24 hours. It is whole if nine in ten
// of its steps of [Step] have a value.
func (m *Machine) wholeDays() []span {
	var days []span
	for first := 0; first < len(m.Times); {
		day, last := m.Times[first]/(daySteps*Step), first
		for last < len(m.Times) && m.Times[last]/(daySteps*Step) == day {
			last++
		}
		if Steps(m.Times[first:last]) >= wholeDay {
			days = append(days, span{day * daySteps * Step, first, last})
		}
		first = last
	}
	return days
}

// Steps returns the number of steps of [Step] in which one of the times is. Times rise.
func Steps(times []int64) int {
	n, last := 0, int64(-1)
	for _, at := range times {
		if at/Step != last {
			n, last = n+1, at/Step
		}
	}
	return n
}

// days returns the number of days with values, whole or not.
func (m *Machine) days() int {
	n, last := 0, int64(-1)
	for _, at := range m.Times {
		if day := at / (daySteps * Step); day != last {
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

// Day returns the use of the machine on its nth whole day, from 1, in values of [Step]. A missing value repeats the
// one before, or the first of the day if there is none before.
func (m *Machine) Day(n int) ([]float64, error) {
	d, err := m.day(n)
	if err != nil {
		return nil, err
	}
	return fill(m.Times[d.first:d.last], m.Total()[d.first:d.last], Step), nil
}

// DayBegins returns the second of the trace at which the nth whole day begins, from 1.
func (m *Machine) DayBegins(n int) (int64, error) {
	d, err := m.day(n)
	return d.begins, err
}

// Grid is the use of one part of a machine on its whole days, without holes.
type Grid struct {
	Name  string
	Limit float64
	Step  int64       // length of a value, in seconds: a minute, or [Step]
	Days  [][]float32 // use on each whole day, as a share of the limit
	Holes int         // values that were missing on these days, and repeat the one before
	Left  int         // days with values that are not whole, and left out
	Over  int         // values above the limit, which count as the limit
}

// Grids returns the whole days of each part that has a limit above 0. Values are a minute long if the machine has more
// of them than five-minute steps.
func (m *Machine) Grids() []Grid {
	days := m.wholeDays()
	step := int64(Step)
	for _, d := range days {
		if d.last-d.first > 2*daySteps {
			step = 60
		}
	}
	var all []Grid
	for i, part := range m.Parts {
		if m.Limits[i] <= 0 || len(days) == 0 {
			continue
		}
		g := Grid{Name: m.Name, Limit: m.Limits[i], Step: step, Left: m.days() - len(days)}
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
	const day = daySteps * Step
	all, next := make([]float64, day/step), 0
	for i := range all {
		for next < len(times)-1 && times[next+1]%day/step <= int64(i) {
			next++
		}
		all[i] = values[next]
	}
	return all
}
