// Package experiment shows on the live kernel, with real processes and without a cluster, the effect of the CPU
// weights, the CPU sets and the bursts that Waterline sets. Each experiment runs in a [sandbox.Sandbox].
//
// Load and outside readers are processes of their own: the running executable starts itself again with
// [sandbox.HelperCommand] as its first argument, and must then call [sandbox.RunHelper] with [Helpers].
package experiment

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/waterline-io/waterline/internal/report"
	"github.com/waterline-io/waterline/lab/load"
	"github.com/waterline-io/waterline/lab/measure"
	"github.com/waterline-io/waterline/lab/sandbox"
)

// Config says where and how an experiment runs. The zero value is a quiet run of the default length on this host.
type Config struct {
	sandbox.Config
	Seconds int  // of measuring; 0: the experiment's default
	Hog     bool // one more pod, annotated 262144, burns all CPUs meanwhile, in an experiment that can have it
}

// seconds returns how long to measure.
func (c Config) seconds(byDefault int) int {
	if c.Seconds == 0 {
		return byDefault
	}
	return c.Seconds
}

// Experiment is one of the experiments.
type Experiment struct {
	Name    string
	About   string // the experiment, in one sentence
	Seconds int    // of measuring, by default
	Hog     bool   // it can run beside the hog, see [Config]
	run     func(context.Context, *run) error
	needs   []string // controllers besides that of CPU time
}

// All lists the experiments in the order in which they explain each other.
func All() []Experiment {
	return []Experiment{
		{
			Name: "fill", Seconds: 5, run: fill,
			About: "A server alone, beside batch in plain cgroups, and beside batch with Waterline: the CPU that is used, and " +
				"the server's latency.",
		},
		{
			Name: "weights", Seconds: 10, Hog: true, run: weights,
			About: "Two pods with equal requests are annotated 8192 and 16384: the second gets twice the CPU time.",
		},
		{
			Name: "preempt", Seconds: 8, Hog: true, run: preempt,
			About: "Three pods of equal weight fill the machine, then a pod annotated 262144 arrives and takes the share of " +
				"its weight.",
		},
		{
			Name: "drift", Seconds: 8, Hog: true, run: drift,
			About: "Another writer overwrites weights again and again while the pods burn CPU: the agent repairs them within " +
				"milliseconds.",
		},
		{
			Name: "cpuset", Seconds: 10, Hog: true, run: cpusets, needs: []string{sandbox.Cpuset},
			About: "A server beside a pod that burns all CPUs, without a CPU of its own and with one: its latency, and who " +
				"else was on its CPU.",
		},
		{
			Name: "burst", Seconds: 30, run: bursts,
			About: "A server stays far below its CPU limit, but its requests come in bursts: it is throttled less and " +
				"answers sooner once it may save up unused quota.",
		},
	}
}

// Find returns the experiment of this name.
func Find(name string) (Experiment, bool) {
	for _, e := range All() {
		if e.Name == name {
			return e, true
		}
	}
	return Experiment{}, false
}

// Helpers returns the helpers of all experiments.
func Helpers() []sandbox.Helper {
	return append(load.Helpers(), sandbox.Helper{Name: "overwrite", Run: overwrite})
}

// run is one experiment as it runs.
type run struct {
	*sandbox.Sandbox
	cfg    Config
	result report.Result
}

// Run runs the experiment in a sandbox of its own.
func (e Experiment) Run(ctx context.Context, cfg Config) (report.Result, error) {
	s, err := sandbox.Open(e.Name, cfg.Config, e.needs...)
	if err != nil {
		return report.Result{}, err
	}
	cfg.Hog = cfg.Hog && e.Hog
	r := &run{Sandbox: s, cfg: cfg, result: report.Begin(e.Name, e.About)}
	r.cfg.Seconds = cfg.seconds(e.Seconds)
	r.result.Machine = measure.DescribeMachine(s.Version())
	if cfg.Hog {
		r.note("One more pod, annotated 262144, burned all CPUs meanwhile.")
	}
	err = e.run(ctx, r)
	return r.result, errors.Join(err, s.Close())
}

// note adds a note to the result.
func (r *run) note(format string, args ...any) {
	r.result.Notes = append(r.result.Notes, fmt.Sprintf(format, args...))
}

func (r *run) meter() measure.Meter { return measure.Meter{Source: r.Sandbox} }

// circumstances adds to the metrics what else the machine did during a window, and a note if that matters.
func (r *run) circumstances(w measure.Window) {
	m, cpus := r.result.Metrics, float64(runtime.NumCPU())
	m["cpus_won"], m["cpus_machine"] = measure.Round(w.CPUs(), 3), cpus
	m["steal_percent"], m["load_1m"] = measure.Round(w.Steal, 2), measure.LoadAverage()
	if w.CPUs() < 0.9*cpus {
		r.note("Other processes on this machine took %.1f of its %.0f CPUs. Ratios may be a few percent off then, and "+
			"everything that is timed takes longer.", cpus-w.CPUs(), cpus)
	}
}
