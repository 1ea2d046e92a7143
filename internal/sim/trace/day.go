package trace

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

const (
	daySteps = 24 * 3600 / Step
	// wholeDay is the least number of values in a whole day. On Alibaba's machines some are missing on every day.
	wholeDay = daySteps * 9 / 10
)

// Day returns the use of the machine on its nth whole day, from 1, in values of [Step]. A day starts at a
// multiple of 24 hours. It is whole if nine in ten values exist. A missing value repeats the one before, or the
// first of the day if there is none before.
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

// fill returns a value for each step of a day, some of which may be missing in values.
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

// FindMachine reads the traces below a directory until it finds the machine with this name, with or without the
// name of its file in front. With "" it returns the first machine with a whole day. The error is fs.ErrNotExist
// if there is none.
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
				if m.hasName(name) {
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

func (m *Machine) hasName(name string) bool {
	if name == "" {
		_, err := m.Day(1)
		return err == nil
	}
	return m.Name == name || strings.HasSuffix(m.Name, "/"+name)
}
