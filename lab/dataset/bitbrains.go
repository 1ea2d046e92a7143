package dataset

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// hostVMs is the number of VMs on a host.
const hostVMs = 10

// vm is one VM of the Bitbrains trace.
type vm struct {
	used     map[int64]float64 // MHz, by step
	capacity float64           // MHz
}

// bitbrains reads GWA-T-12: the CPU use of VMs in MHz. Ten VMs with consecutive numbers form a host.
func bitbrains(r *rows) ([]Machine, error) {
	columns, err := r.columns("vm", "time_s", "cap_mhz", "cpu_mhz")
	if err != nil {
		return nil, err
	}
	vms := map[int]*vm{}
	err = r.each(func() error {
		text, err := r.text(columns[0])
		if err != nil {
			return err
		}
		id, err := strconv.Atoi(text)
		if err != nil {
			return r.bad(columns[0], text, "the number of a VM")
		}
		at, err := r.seconds(columns[1])
		if err != nil {
			return err
		}
		capacity, err := r.number(columns[2])
		if err != nil {
			return err
		}
		used, err := r.number(columns[3])
		if err != nil {
			return err
		}
		if vms[id] == nil {
			vms[id] = &vm{used: map[int64]float64{}}
		}
		v := vms[id]
		if _, exists := v.used[at/r.step]; !exists {
			if err := r.keep(); err != nil {
				return err
			}
		}
		v.used[at/r.step] = used
		v.capacity = max(v.capacity, capacity)
		return nil
	})
	if err != nil {
		return nil, err
	}
	var hosts []Machine
	for group := range slices.Chunk(slices.Sorted(maps.Keys(vms)), hostVMs) {
		if len(group) < hostVMs {
			break // fewer than ten VMs are left
		}
		var members []*vm
		for _, id := range group {
			members = append(members, vms[id])
		}
		hosts = append(hosts, host(r, fmt.Sprintf("host%d", len(hosts)), members))
	}
	return hosts, nil
}

// host returns a machine that runs the given VMs. It skips steps in which two or more VMs have no value. If one
// VM has none, its value is the one before.
func host(r *rows, name string, vms []*vm) Machine {
	measured := map[int64]int{}
	for _, v := range vms {
		for step := range v.used {
			measured[step]++
		}
	}
	maps.DeleteFunc(measured, func(_ int64, n int) bool { return n < len(vms)-1 })
	steps := slices.Sorted(maps.Keys(measured))
	m := Machine{Name: r.label(name)}
	for _, step := range steps {
		m.Times = append(m.Times, step*r.step)
	}
	for _, v := range vms {
		part, last := make([]float64, 0, len(steps)), 0.0
		for _, step := range steps {
			if used, exists := v.used[step]; exists {
				last = used
			}
			part = append(part, min(last, v.capacity))
		}
		m.Parts = append(m.Parts, part)
		m.Limits = append(m.Limits, v.capacity)
	}
	return m
}
