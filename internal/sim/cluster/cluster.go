// Package cluster simulates a day of a cluster: online pods whose use is that of a trace, batch pods on what these
// leave, and a scheduler that places both.
//
// The decisions are Waterline's own: each node decides with package decide/node, the scheduler scores with package
// decide/cluster/place, and evictions pass package decide/cluster/evictbudget. Traces have means of a minute or more.
// So what happens within a minute is not simulated: how long pods wait for CPUs, and with it suppression by harm;
// bursts of quotas; glances at counters. Where harm is not known, the rules suppress batch by arithmetic, as they do on
// a real node. Requests, weights, the memory of online pods and the jobs are assumed; [Options] says how.
//
// Time is virtual, and the same options give the same figures.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/sim/jobs"
	"github.com/waterline-io/waterline/internal/sim/node"
	"github.com/waterline-io/waterline/internal/sim/trace"
	"github.com/waterline-io/waterline/internal/sim/yarn"
)

// tick is the time between two looks at the cluster. A node decides at each tick while something of it is under way,
// and otherwise when its pods use something else. The rules take a longer time between two rounds for a gap.
const tick = 5 * time.Second

// What happens before the day, and is not counted. First all pods get their nodes one after the other. Then they all
// start anew in random order, so that the scheduler places them as in a cluster that has been running for long:
// meanwhile the predictors are taught again and again with the past of the pods that are on their nodes.
const (
	warmUp   = 3 * time.Hour
	placed   = 2 * time.Hour    // before the day, all pods have been placed
	restarts = 50 * time.Minute // before the day, all pods have been started anew
	begins   = 45 * time.Minute // before the day, jobs begin
	learns   = 20 * time.Minute // until all pods have been started anew
	day      = 24 * time.Hour
)

// historyDays is the maximum number of past days of its pods from which the predictor of a node learns.
const historyDays = 7

// Part is the time for which series have one value.
const Part = 15 * time.Minute

// Scheduler is the way in which pods get their nodes.
type Scheduler string

// The schedulers.
const (
	Stock     Scheduler = "stock"     // by requests
	Waterline Scheduler = "waterline" // by requests, load, weights and offers, with the plugins' default weights
)

// Options are what a simulation assumes.
type Options struct {
	Use    []trace.Grid // the online pods use what these used
	Nodes  int
	Cores  int64 // of a node
	Memory int64 // of a node, in MiB
	Pods   int   // online pods for each node
	// Online is the CPU that online pods use in the mean of the day, as a share of that of all nodes: their sizes follow
	// from it. Requested is the share that they request. All pods request the same share of their size.
	Online, Requested float64
	// Weighted is the share of online pods that have a weight: twice their CPU request.
	Weighted float64
	// Lifetime is the mean time after which an online pod is started anew, on a node that the scheduler chooses; 0: never.
	Lifetime time.Duration
	// MemoryBase and MemoryRise are the memory that an online pod uses, as shares of its request: always, and in addition
	// if it uses all CPU of its size.
	MemoryBase, MemoryRise float64
	// Jobs run in batch pods, each of which requests Batch.
	Jobs
	Batch     model.Amount
	Policy    model.ClusterPolicy // of all nodes, whatever it selects
	Scheduler Scheduler
	Seed      uint64
	Parallel  int // nodes that decide at the same time; the figures do not depend on it
	// Progress is called from time to time, with how much of the day has passed; nil: not.
	Progress func(passed, all time.Duration)

	// Machines are the nodes of a recorded cluster; nil: Nodes of the same size. Services are its online pods, instead of
	// those that follow Use; nil: these.
	Machines []Machine
	Services []Service

	// Pool is a pool of YARN's workers on all nodes, besides batch pods; nil: none.
	Pool *Pool

	every time.Duration // the time for which the use of all online pods stays the same
}

// Jobs describe batch work.
type Jobs struct {
	Load       float64 // CPU that the jobs need, as a share of that of all nodes
	Containers int     // of a job, in the mean
	// Median is the median time that a container runs on free CPUs, and Spread the standard deviation of its logarithm.
	Median time.Duration
	Spread float64
}

func (j *Jobs) valid() bool { return j.Load >= 0 && j.Load <= 10 && j.Containers >= 1 && j.Median > 0 }

// Pool describes a pool of workers, and the jobs that run on them.
type Pool struct {
	yarn.Settings
	Jobs
}

// DefaultPool returns the jobs of a pool, whose settings are to be added.
func DefaultPool() Pool {
	return Pool{
		Settings: yarn.Settings{Container: pool.Size{MemoryMiB: 2048, VCores: 1}},
		Jobs:     Jobs{Load: 0.9, Containers: 50, Median: 5 * time.Minute, Spread: 1.2},
	}
}

// Machine is a node of a recorded cluster.
type Machine struct {
	Capacity, Allocatable model.Amount
	Pinned                model.Amount // requests of pods that are on it whatever the scheduler does
	// System and SystemMemory are what all but the online pods of [Options] uses, in milli-cores and bytes; nil: nothing.
	System, SystemMemory *trace.Grid
}

// Service is an online pod of a recorded cluster. The last day of its use is simulated.
type Service struct {
	Use     trace.Grid   // in milli-cores
	Memory  *trace.Grid  // in bytes; nil: as assumed for pods that follow a trace
	Request model.Amount // 0: BestEffort
	Limit   int64        // milli-cores; 0: none
}

// Defaults returns options without use.
func Defaults() Options {
	return Options{
		Nodes: 100, Cores: 32, Memory: 128 << 10, Pods: 12, Online: 0.3, Requested: 0.7, Weighted: 0.2,
		Lifetime: 3 * day, MemoryBase: 0.45, MemoryRise: 0.4,
		Jobs:   Jobs{Load: 0.9, Containers: 20, Median: 20 * time.Minute, Spread: 1.2},
		Batch:  model.Amount{CPU: 2000, Memory: 4 << 30},
		Policy: DefaultPolicy(), Scheduler: Waterline, Seed: 1, Parallel: 1,
	}
}

// DefaultPolicy returns the policy that is simulated by default: what is enforced with the defaults of a policy, quotas
// for batch, and evictions.
func DefaultPolicy() model.ClusterPolicy {
	p := model.DefaultPolicy()
	p.Mode = model.ModeEnforce
	p.CPU.Method, p.Memory.Method = model.SellPredicted, model.SellPredicted
	p.Suppress.By = model.SuppressOnHarm
	p.Protect.EvictPerHour = model.DefaultEvictPerHour
	return model.ClusterPolicy{Name: "default", Rollout: model.DefaultRollout, Policy: p}
}

// check returns an error that names the option that cannot be simulated.
func (o *Options) check() error {
	switch {
	case len(o.Use) == 0 && len(o.Services) == 0:
		return errors.New("there is no use of online pods")
	case o.Machines != nil && len(o.Machines) != o.Nodes:
		return fmt.Errorf("%d nodes are described, and %d simulated", len(o.Machines), o.Nodes)
	case o.Nodes < 1 || o.Pods < 1 || o.Nodes*o.Pods > 1<<20:
		return fmt.Errorf("%d nodes with %d online pods each: there are 1 to %d pods", o.Nodes, o.Pods, 1<<20)
	case o.Cores < 1 || o.Memory < 1<<10:
		return fmt.Errorf("a node has %d cores and %d MiB; 1 and 1024 are the least", o.Cores, o.Memory)
	case !share(o.Online) || !share(o.Requested) || o.Requested == 0:
		return fmt.Errorf("online pods use %g and request %g of the nodes: both are from 0 to 1", o.Online, o.Requested)
	case !o.Jobs.valid() || o.Batch.CPU < 1 || o.Batch.Memory < 1:
		return fmt.Errorf("jobs of %d pods of %d milli-cores and %d bytes for %s at a load of %g are none", o.Containers,
			o.Batch.CPU, o.Batch.Memory, o.Median, o.Load)
	case o.Pool != nil && (!o.Pool.Jobs.valid() || o.Pool.Container.VCores < 1 || o.Pool.Container.MemoryMiB < 1):
		return fmt.Errorf("jobs of %d containers of %s for %s at a load of %g are none", o.Pool.Containers,
			o.Pool.Container, o.Pool.Median, o.Pool.Load)
	case o.Scheduler != Stock && o.Scheduler != Waterline:
		return fmt.Errorf("scheduler %q: there are %s and %s", o.Scheduler, Stock, Waterline)
	}
	for _, g := range o.grids() {
		if len(g.Days) == 0 {
			return fmt.Errorf("%s has no whole day", g.Name)
		}
	}
	return nil
}

// grids are all recorded uses.
func (o *Options) grids() (all []*trace.Grid) {
	for i := range o.Use {
		all = append(all, &o.Use[i])
	}
	for i := range o.Services {
		all = append(all, &o.Services[i].Use, o.Services[i].Memory)
	}
	for i := range o.Machines {
		all = append(all, o.Machines[i].System, o.Machines[i].SystemMemory)
	}
	return slices.DeleteFunc(all, func(g *trace.Grid) bool { return g == nil })
}

func share(v float64) bool { return v >= 0 && v <= 1 && !math.IsNaN(v) }

func (o *Options) machine(i int) Machine {
	if o.Machines != nil {
		return o.Machines[i]
	}
	size := model.Amount{CPU: o.Cores * 1000, Memory: o.Memory << 20}
	return Machine{Capacity: size, Allocatable: size}
}

// capacity returns the capacity of all nodes, and the CPU of the largest.
func (o *Options) capacity() (all model.Amount, largest int64) {
	for i := range o.Nodes {
		c := o.machine(i).Capacity
		all, largest = all.Plus(c), max(largest, c.CPU)
	}
	return all, largest
}

// step returns the time for which the use of all online pods stays the same.
func (o *Options) step() time.Duration {
	step := int64(trace.Step)
	for _, g := range o.grids() {
		step = min(step, g.Step)
	}
	return time.Duration(step) * time.Second
}

// queue returns jobs whose containers use so many cores each.
func (o *Options) queue(j Jobs, cores float64, seed uint64) *jobs.Queue {
	all, _ := o.capacity()
	return jobs.New(jobs.Settings{
		Cores: j.Load * float64(all.CPU) / 1000, Containers: j.Containers, Container: cores, Median: j.Median,
		Spread: j.Spread,
	}, seed, node.Dawn().Add(-begins))
}

// Run simulates one day.
func Run(ctx context.Context, o Options) (Result, error) {
	if err := o.check(); err != nil {
		return Result{}, fmt.Errorf("simulating a cluster: %w", err)
	}
	s := newSimulation(&o)
	for s.now < day {
		if err := ctx.Err(); err != nil {
			return Result{}, fmt.Errorf("simulating a cluster: %w", err)
		}
		s.step()
		if o.Progress != nil && s.now%(5*time.Minute) == 0 {
			o.Progress(s.now+warmUp, day+warmUp)
		}
	}
	return s.result(), nil
}
