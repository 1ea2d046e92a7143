package dataset

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/waterline-io/waterline/internal/sim/trace"
)

// planetlab reads PlanetLab's CPU use of VMs as CloudSim has it, in percent: a file for each day, named after it, and
// without names of columns; a row for each VM, with its name and a value for each five minutes. A VM has the same name
// on all days.
func planetlab(r *rows) ([]Machine, error) {
	name := filepath.Base(r.name)
	day, err := time.Parse("20060102", name[:min(len(name), 8)])
	if err != nil {
		return nil, fmt.Errorf("trace %s must be named after its day, such as 20110303.csv", r.name)
	}
	header := []string{"name"}
	for i := range daySteps {
		header = append(header, "value "+strconv.Itoa(i+1))
	}
	r.header, r.again = header, true // the first row is a VM's
	var all []Machine
	err = r.each(func() error {
		if len(r.cells) != len(header) {
			return fmt.Errorf("trace %s, line %d: %d columns, not a name and %d values of five minutes", r.name, r.line,
				len(r.cells), daySteps)
		}
		m := Machine{Name: r.cells[0], Parts: make([][]float64, 1), Limits: []float64{100}}
		for i := range daySteps {
			v, err := r.number(i + 1)
			if err == nil {
				err = r.keep()
			}
			if err != nil {
				return err
			}
			m.Times = append(m.Times, day.Unix()+int64(i)*trace.Step)
			m.Parts[0] = append(m.Parts[0], v)
		}
		all = append(all, m)
		return nil
	})
	return all, err
}

// Join makes one machine of those with the same name, such as one of which each file has a day. They must have one
// part. Values at or before a time that another one has are left out.
func Join(all []Machine) []Machine {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b Machine) int {
		first := func(m *Machine) int64 {
			if len(m.Times) == 0 {
				return 0
			}
			return m.Times[0]
		}
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(first(&a), first(&b)))
	})
	var joined []Machine
	for i := range all {
		m := &all[i]
		if len(joined) == 0 || joined[len(joined)-1].Name != m.Name || len(m.Parts) != 1 {
			joined = append(joined, *m)
			continue
		}
		to := &joined[len(joined)-1]
		to.Limits = []float64{max(to.Limits[0], m.Limits[0])}
		for k, at := range m.Times {
			if len(to.Times) == 0 || at > to.Times[len(to.Times)-1] {
				to.Times, to.Parts[0] = append(to.Times, at), append(to.Parts[0], m.Parts[0][k])
			}
		}
	}
	return joined
}
