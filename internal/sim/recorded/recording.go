// Package recorded has what a cluster used: read from Prometheus, or from an archive that was saved before.
//
// It reads the node_exporter's, the kubelet's and kube-state-metrics' series, whichever a server has, and makes nodes
// and pods of them that package sim/cluster can simulate. Where a series is missing it assumes something and notes
// that. Values that cannot be true, such as milli-cores where cores are due, are errors.
package recorded

import (
	"fmt"
	"slices"
	"time"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/sim/cluster"
	"github.com/waterline-io/waterline/internal/sim/trace"
)

// The times that one value of a series covers.
const (
	step       = trace.Step * time.Second // CPU
	memoryStep = time.Hour                // memory, which changes slowly
	day        = 24 * time.Hour
)

// missing is a value that was not recorded.
const missing = -1

// Recording is what the nodes and pods of a cluster used in whole days.
type Recording struct {
	From  string    // what it was read from
	Begin time.Time // midnight, UTC
	Days  int
	Nodes []Node
	Pods  []Pod
	// Notes say what was assumed, and what was left out.
	Notes []string
}

// Node is a node.
type Node struct {
	Name                  string
	Capacity, Allocatable model.Amount
	// Pinned is what pods of DaemonSets and static pods request. CPU (milli-cores) and Memory (MiB) are what they and
	// everything beside pods use; if the recording has no pods, what all of the node uses.
	Pinned      model.Amount
	CPU, Memory []int32
}

// Pod is a pod that can run on any node. Pods of one workload that ran one after the other are one.
type Pod struct {
	Name    string // namespace and workload
	Request model.Amount
	Limit   int64   // milli-cores; 0: none
	CPU     []int32 // milli-cores
	Memory  []int32 // MiB
}

// Options returns options of a simulation of the last recorded day. All that is not recorded is as in o. The recording
// has no series afterwards, because those of a large cluster do not fit into memory twice.
func (r *Recording) Options(o cluster.Options) cluster.Options {
	o.Nodes, o.Machines, o.Services, o.Use = len(r.Nodes), nil, nil, nil
	all, used := model.Amount{}, 0.0
	for i := range r.Nodes {
		n := &r.Nodes[i]
		m := cluster.Machine{Capacity: n.Capacity, Allocatable: n.Allocatable, Pinned: n.Pinned}
		cpu := r.grid(n.Name, n.CPU, step)
		switch {
		case len(r.Pods) > 0:
			m.System, m.SystemMemory = cpu, inBytes(r.grid(n.Name, n.Memory, memoryStep))
		case cpu != nil:
			last := cpu.Days[len(cpu.Days)-1]
			for _, v := range last {
				used += float64(v) * cpu.Limit / float64(len(last))
			}
			o.Use = append(o.Use, *cpu)
		}
		n.CPU, n.Memory = nil, nil
		o.Machines = append(o.Machines, m)
		all = all.Plus(n.Capacity)
	}
	if len(r.Pods) == 0 {
		o.Online = used / float64(all.CPU)
		return o
	}
	for i := range r.Pods {
		p := &r.Pods[i]
		cpu, memory := r.grid(p.Name, p.CPU, step), inBytes(r.grid(p.Name, p.Memory, memoryStep))
		p.CPU, p.Memory = nil, nil
		if cpu != nil {
			o.Services = append(o.Services, cluster.Service{Use: *cpu, Memory: memory, Request: p.Request, Limit: p.Limit})
		}
	}
	return o
}

func inBytes(g *trace.Grid) *trace.Grid {
	if g != nil {
		g.Limit *= 1 << 20
	}
	return g
}

// grid returns a series as whole days, as shares of its highest value. A missing value repeats the one before. It
// returns nil if there is no value.
func (r *Recording) grid(name string, values []int32, step time.Duration) *trace.Grid {
	most := int32(missing)
	for _, v := range values {
		most = max(most, v)
	}
	if most == missing {
		return nil
	}
	g := trace.Grid{Name: name, Limit: max(float64(most), 1), Step: int64(step / time.Second)}
	last, each := int32(0), int(day/step)
	for d := range r.Days {
		one := make([]float32, each)
		for i := range one {
			if v := values[d*each+i]; v != missing {
				last = v
			}
			one[i] = float32(float64(last) / g.Limit)
		}
		g.Days = append(g.Days, one)
	}
	return &g
}

// About says what was recorded.
func (r *Recording) About() string {
	last := r.Begin.Add(time.Duration(r.Days-1) * day).Format(time.DateOnly)
	return fmt.Sprintf("%d nodes and %d pods, as recorded on %s (UTC) by %s", len(r.Nodes), len(r.Pods), last, r.From)
}

// check returns an error if the recording cannot be simulated.
func (r *Recording) check() error {
	if r.Days < 1 || r.Days > MaxDays || len(r.Nodes) == 0 || !r.Begin.Equal(r.Begin.Truncate(day)) {
		return fmt.Errorf("a recording of %d nodes and %d days from %s is none", len(r.Nodes), r.Days, r.Begin)
	}
	series := func(of string, cpu, memory []int32) error {
		for _, s := range []struct {
			name   string
			values []int32
			step   time.Duration
		}{{"the CPU of " + of, cpu, step}, {"the memory of " + of, memory, memoryStep}} {
			if want := r.Days * int(day/s.step); len(s.values) != want {
				return fmt.Errorf("%s has %d values, not %d", s.name, len(s.values), want)
			}
			if i := slices.IndexFunc(s.values, func(v int32) bool { return v < missing }); i >= 0 {
				return fmt.Errorf("value %d of %s is %d", i+1, s.name, s.values[i])
			}
		}
		return nil
	}
	for i := range r.Nodes {
		n := &r.Nodes[i]
		if n.Capacity.CPU < 1 || n.Capacity.Memory < 1 || n.Allocatable.CPU < 1 || n.Allocatable.Memory < 1 ||
			n.Pinned.CPU < 0 || n.Pinned.Memory < 0 {
			return fmt.Errorf("node %s has %d milli-cores and %d bytes", n.Name, n.Capacity.CPU, n.Capacity.Memory)
		}
		if err := series("node "+n.Name, n.CPU, n.Memory); err != nil {
			return err
		}
	}
	for i := range r.Pods {
		p := &r.Pods[i]
		if p.Request.CPU < 0 || p.Request.Memory < 0 || p.Limit < 0 {
			return fmt.Errorf("pod %s requests %d milli-cores and %d bytes", p.Name, p.Request.CPU, p.Request.Memory)
		}
		if err := series("pod "+p.Name, p.CPU, p.Memory); err != nil {
			return err
		}
	}
	return nil
}
