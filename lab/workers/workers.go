// Package workers simulates a cluster whose nodes run online services as a trace says, and workers of a batch engine on
// what these leave.
//
// The decisions are Waterline's own: the predictor and the slack of each agent, and the steps of the pool. The
// ResourceManager, the NodeManagers and the jobs are models, and so are things that no trace has: how usage moves
// within a value of the trace, and the memory of online services. [Options] says how. Time is virtual, and the same
// options give the same figures.
package workers

import (
	"context"
	"fmt"
	"time"

	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/sim/jobs"
	"github.com/waterline-io/waterline/internal/sim/yarn"
	"github.com/waterline-io/waterline/lab/dataset"
)

// tick is the time between two looks at everything. Rounds of a pool are as far apart.
const tick = 2 * time.Second

// warmUp is simulated before the day, and not counted. Meanwhile offers grow, and falls of memory are measured.
const warmUp = 2 * time.Hour

// Part is the time for which series have one value.
const Part = 15 * time.Minute

// Options are what a simulation assumes.
type Options struct {
	Machines []dataset.Machine // one for each node; the use of all its parts together is that of online services
	Day      int               // the simulated day of each machine, from 1; the days before it teach the predictor
	Cores    int64             // of a node
	Memory   int64             // of a node, in MiB
	// Noise is the standard deviation of the use of a few seconds within a value of the trace, as a share of that value.
	Noise float64
	// MemoryBase and MemoryRise are the memory that online services use, as shares of the node's: always, and in
	// addition if they use all CPUs. It follows the CPU with a half-life of ten minutes.
	MemoryBase, MemoryRise float64
	// Load is the CPU that the jobs need, as a share of that of all nodes.
	Load float64
	// Containers is the mean number of containers of a job, Median the median time that one runs on a free CPU, and
	// Spread the standard deviation of its logarithm.
	Containers int
	Median     time.Duration
	Spread     float64
	Container  pool.Size // of each container
	Waterline  int64     // of CPU and memory, in thousandths
	Seed       uint64
}

// Defaults returns options without machines.
func Defaults() Options {
	return Options{
		Day: 8, Cores: 32, Memory: 128 << 10, Noise: 0.15, MemoryBase: 0.3, MemoryRise: 0.3, Load: 0.9, Containers: 50,
		Median: 5 * time.Minute, Spread: 1.2, Container: pool.Size{MemoryMiB: 2048, VCores: 1}, Waterline: 800, Seed: 1,
	}
}

// check returns an error that names the option that cannot be simulated.
func (o *Options) check() error {
	switch {
	case len(o.Machines) == 0:
		return fmt.Errorf("there are no machines")
	case o.Cores < 4 || o.Memory < 16<<10:
		return fmt.Errorf("a node has %d cores and %d MiB; 4 and 16384 are the least", o.Cores, o.Memory)
	case o.Container.VCores < 1 || o.Container.MemoryMiB < 1 || o.Containers < 1 || o.Median <= 0 || !(o.Load > 0):
		return fmt.Errorf("jobs of %d containers of %s for %s at a load of %g are none", o.Containers, o.Container, o.Median,
			o.Load)
	}
	return nil
}

// jobs describes the jobs.
func (o *Options) jobs() jobs.Settings {
	return jobs.Settings{
		Cores: o.Load * float64(o.Cores) * float64(len(o.Machines)), Containers: o.Containers,
		Container: float64(o.Container.VCores), Median: o.Median, Spread: o.Spread,
	}
}

// Policy is a way to run workers.
type Policy struct {
	Name  string
	About string
	// Compared means that the policy is no stage on the way of a cluster, but there for comparison.
	Compared bool
	workers  bool // without, the rest does not count
	// floor and ceiling of a worker, as shares of its node in thousandths.
	floor, ceiling part
	sells          model.SellMethod // of CPU
	night          bool             // only from midnight to nine
	naive          bool             // the total is what online services leave at each moment
}

// part is a share of a node's CPU and memory, in thousandths.
type part struct{ cpu, memory int64 }

// Policies returns the simulated policies: the stages in their order, and then those for comparison.
func Policies() []Policy {
	fixed, low, all := part{250, 250}, part{63, 250}, part{1000, 1000}
	return []Policy{
		{Name: "alone", About: "online services alone"},
		{Name: "night", About: "a worker of a quarter of each node, from 00:00 to 09:00", workers: true, floor: fixed,
			ceiling: fixed, night: true, sells: model.SellPredicted},
		{Name: "oversubscribed", About: "the same worker all day, on the offer; it is never resized", workers: true,
			floor: fixed, ceiling: fixed, sells: model.SellPredicted},
		{Name: "24h", About: "its CPU follows the node, its memory does not", workers: true, floor: low,
			ceiling: part{1000, 250}, sells: model.SellRealtime},
		{Name: "memory", About: "its CPU and its memory follow the node", workers: true, floor: part{63, 32},
			ceiling: all, sells: model.SellRealtime},
		{Name: "predicted", About: "the same, where the offer of CPU is predicted", Compared: true, workers: true,
			floor: part{63, 32}, ceiling: all, sells: model.SellPredicted},
		{Name: "naive", About: "it offers what online services leave at each moment", Compared: true, workers: true,
			floor: part{63, 32}, ceiling: all, naive: true, sells: model.SellRealtime},
	}
}

// Find returns the policy with a name.
func Find(name string) (Policy, bool) {
	for _, p := range Policies() {
		if p.Name == name {
			return p, true
		}
	}
	return Policy{}, false
}

// settings returns the settings of the pool.
func (p Policy) settings(o *Options) yarn.Settings {
	size := func(s part) pool.Size {
		step := stepOf(o)
		return pool.Size{
			MemoryMiB: max(o.Memory*s.memory/1000/step.MemoryMiB, 1) * step.MemoryMiB, VCores: max(o.Cores*s.cpu/1000, 1),
		}
	}
	s := yarn.Settings{Overhead: overhead, Container: o.Container}
	s.Settings = pool.Settings{
		Label: "elastic", Floor: size(p.floor), Ceiling: size(p.ceiling), Step: stepOf(o), Pause: 30 * time.Second,
		Window: 10 * time.Minute, Core: 1, Grace: time.Minute, Drain: 30 * time.Minute, Register: 3 * time.Minute,
		Recover: 10 * time.Minute, CoolDown: time.Minute, Attempts: 2,
	}
	if p.night {
		s.Schedule = atNight
	}
	return s
}

// atNight is the window of the policy that runs at night only. It drains for the last three quarters of an hour.
func atNight(now time.Time, i, n int) (wanted bool, end time.Time) {
	day := now.Truncate(24 * time.Hour)
	o := pool.Opening{Start: day, Drain: day.Add(8*time.Hour + 15*time.Minute), End: day.Add(9 * time.Hour)}
	o.Open = now.Before(o.End)
	return pool.Schedule(now, o, pool.Ramp{Waves: 1}, i, n)
}

// stepOf returns the step of workers: what a thirty-second of a node has, and a core at least.
func stepOf(o *Options) pool.Size {
	return pool.Size{MemoryMiB: max(o.Memory/64, 512), VCores: max(o.Cores/32, 1)}
}

// overhead is what a NodeManager needs besides its containers.
var overhead = model.Amount{CPU: 100, Memory: 1 << 30}

// Run simulates one day under a policy.
func Run(ctx context.Context, o Options, p Policy) (Result, error) {
	if err := o.check(); err != nil {
		return Result{}, fmt.Errorf("simulating workers: %w", err)
	}
	c, err := newCluster(&o, p)
	if err != nil {
		return Result{}, fmt.Errorf("simulating workers: %w", err)
	}
	for c.now.Before(c.end) {
		if err := ctx.Err(); err != nil {
			return Result{}, fmt.Errorf("simulating workers: %w", err)
		}
		c.step()
	}
	return c.result(), nil
}
