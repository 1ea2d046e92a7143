package main

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/pflag"

	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
	"github.com/waterline-io/waterline/internal/decide/policy"
	"github.com/waterline-io/waterline/internal/manager/pools"
	"github.com/waterline-io/waterline/internal/observe/kube"
	"github.com/waterline-io/waterline/internal/report"
	"github.com/waterline-io/waterline/internal/report/chart"
	"github.com/waterline-io/waterline/internal/sim/cluster"
)

// crewRun says which pool of workers is simulated.
type crewRun struct {
	file string
	load float64
}

func (r *crewRun) flags(flags *pflag.FlagSet) {
	flags.StringVar(&r.file, "pool", "", "file with a WorkerPool of YARN, whose workers run on all nodes; "+
		"--load is then 0 by default")
	flags.Float64Var(&r.load, "pool-load", cluster.DefaultPool().Load,
		"CPU that the jobs of the pool need, as a share of all nodes'")
}

// check returns an error that says which flag is wrong. changed reports whether a flag was given.
func (r *crewRun) check(changed func(flag string) bool) error {
	switch {
	case r.file == "" && changed("pool-load"):
		return usageError(fmt.Errorf("--pool-load needs --pool"))
	case !(r.load >= 0 && r.load <= 10):
		return usageError(fmt.Errorf("--pool-load %g: write a number from 0 to 10", r.load))
	}
	return nil
}

// read reads the pool; nil: there is none.
func (r *crewRun) read() (*cluster.Pool, error) {
	if r.file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(r.file)
	if err != nil {
		return nil, fmt.Errorf("reading a worker pool: %w", err)
	}
	spec, read, err := kube.ParseWorkerPool(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.file, err)
	}
	if spec.Spec.YARN == nil || spec.Spec.Replicas != nil {
		return nil, fmt.Errorf("%s: a pool with spec.yarn and without spec.replicas can be simulated: it has a worker on "+
			"each node", r.file)
	}
	p := cluster.DefaultPool()
	p.Settings.Settings, p.Overhead, p.Load = pools.Settings(&read, spec.Spec.YARN.Label.Name), read.Overhead, r.load
	if c := p.Container; c.VCores > p.Ceiling.VCores || c.MemoryMiB > p.Ceiling.MemoryMiB {
		return nil, fmt.Errorf("%s: a worker offers %s at most, and a simulated container has %s", r.file, p.Ceiling, c)
	}
	p.Schedule = func(now time.Time, i, n int) (bool, time.Time) {
		ramp := pool.Ramp{Waves: read.Waves, Interval: read.WaveInterval}
		return pool.Schedule(now, pool.Opening(policy.OpeningAt(read.Windows, now)), ramp, i, n)
	}
	return &p, nil
}

// poolSection shows what the pool's workers did.
func poolSection(all *report.Result, days []clusterDay) report.Result {
	r := section(all, days, "workers", "What the pool's workers did. Their CPU is part of what batch used.",
		chart.Day{
			Title: "Workers in the course of the day", Desc: "CPU that containers of the pool used.",
			Caption: "CPU that containers of the pool used, in percent of all CPUs",
		},
		func(d *clusterDay) []float64 { return d.Hours.Workers }, crewHead(), crewRow)
	last := days[len(days)-1].Pool
	r.Headline.Value = number(last.Hours, 0) + " core-hours"
	r.Notes = []string{"Killed: containers that did not fit when their worker had shrunk for a minute, or whose worker " +
		"ended. Their work begins anew. Pushback: containers get a deadline, because their worker shrinks or stops."}
	return r
}

// crewHead and crewRow are the table of the pool.
func crewHead() []string {
	return []string{
		"worker core-h", "ended core-h", "lost core-h", "killed containers", "pushbacks", "without kill %", "resizes",
		"workers started", "waiting",
	}
}

func crewRow(d *clusterDay) []string {
	p := d.Pool
	return []string{
		number(p.Hours, 0), number(p.Goodput, 0), number(p.Lost, 1), fmt.Sprint(p.Killed), fmt.Sprint(p.Pushbacks),
		number(100*(1-p.ForcedShare()), 1), fmt.Sprint(p.Resizes), fmt.Sprint(p.Starts), fmt.Sprint(p.Waiting),
	}
}
