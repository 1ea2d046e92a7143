package trace

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

const (
	daySteps = 24 * 3600 / Step
	// wholeDay is how many of a day's values must be there: machines of Alibaba's lack some in every day.
	wholeDay = daySteps * 9 / 10
)

// Day returns what the machine used in the nth of its whole days, from 1, in values of [Step]. A day begins where its time is
// a multiple of 24 hours, and is whole if nine of ten values are there; those that are missing are as the one before, at the
// begin as the first.
func (m *Machine) Day(n int) ([]float64, error) {
	total, whole := m.Total(), 0
	for first := 0; first < len(total); {
		day, last := m.Times[first]/(daySteps*Step), first
		for last < len(total) && m.Times[last]/(daySteps*Step) == day {
			last++
		}
		if last-first >= wholeDay {
			whole++
		}
		if last-first >= wholeDay && whole == n {
			return fill(m.Times[first:last], total[first:last]), nil
		}
		first = last
	}
	return nil, fmt.Errorf("machine %s has %d whole days, and no day %d", m.Name, whole, n)
}

// fill returns a value for each step of a day, of which some may be missing.
func fill(times []int64, values []float64) []float64 {
	all, next := make([]float64, daySteps), 0
	for i := range all {
		for next < len(times)-1 && times[next+1]%(daySteps*Step)/Step <= int64(i) {
			next++
		}
		all[i] = values[next]
	}
	return all
}

// FindMachine reads the traces below a directory until it finds a machine of this name, with the name of its file before it or
// without; "" is the first that has a whole day. None is fs.ErrNotExist.
func FindMachine(root, name string) (Machine, error) {
	for _, d := range Datasets() {
		files, err := d.Files(root)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return Machine{}, err
		}
		for _, file := range files {
			machines, err := d.Read(file)
			if err != nil {
				return Machine{}, err
			}
			for _, m := range machines {
				if m.called(name) {
					return m, nil
				}
			}
		}
	}
	if name == "" {
		return Machine{}, fmt.Errorf("no trace below %s has a machine with a whole day: %w", root, fs.ErrNotExist)
	}
	return Machine{}, fmt.Errorf("no trace below %s has a machine %s: %w", root, name, fs.ErrNotExist)
}

func (m *Machine) called(name string) bool {
	if name == "" {
		_, err := m.Day(1)
		return err == nil
	}
	return m.Name == name || strings.HasSuffix(m.Name, "/"+name)
}
