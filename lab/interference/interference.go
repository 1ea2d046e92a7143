// Package interference measures whether the agent names the right suspect when a batch pod takes the CPU of a server,
// how soon, and how much throttling that pod helps.
package interference

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/report"
	"github.com/waterline-io/waterline/lab/load"
	"github.com/waterline-io/waterline/lab/measure"
	"github.com/waterline-io/waterline/lab/sandbox"
)

// The experiment.
const (
	Name  = "interference"
	About = "A server beside four batch pods, one of which begins to take its CPU: which pod the agent names, how " +
		"soon, and how " +
		"much throttling that pod helps."
	DefaultSeconds = 100 // for which a pod is guilty
	DefaultRepeats = 5   // runs in which a pod is guilty
	DefaultNobody  = 2   // runs in which no pod is
)

// Config says what the experiment measures.
type Config struct {
	sandbox.Config
	// Seconds is for how long a pod is guilty; 0: DefaultSeconds. Before that the run measures for a third longer,
	// because the agent names no pod before it has two minutes of measurements, and afterwards for two thirds of it.
	Seconds int
	Repeats int // runs in which a pod is guilty; 0: DefaultRepeats
	Nobody  int // runs in which no pod is
}

// Run runs a server and four batch pods on two CPUs, under an agent that looks for the reason why online pods wait. In
// most runs one of the four, another each time, begins to run on the server's CPU; in some a process outside of all
// pods does. The runs come in random order. The metrics are those of [outcome.report].
func Run(ctx context.Context, cfg Config) (report.Result, error) {
	if cfg.Seconds == 0 {
		cfg.Seconds = DefaultSeconds
	}
	if cfg.Repeats == 0 {
		cfg.Repeats = DefaultRepeats
	}
	r := report.Begin(Name, About)
	found := outcome{seconds: cfg.Seconds}
	for i, guilty := range cfg.order() {
		run, version, err := cfg.run(ctx, fmt.Sprintf("run %d of %d", i+1, cfg.Repeats+cfg.Nobody), guilty)
		if err != nil {
			return r, err
		}
		r.Machine = measure.DescribeMachine(version)
		found.runs = append(found.runs, run)
	}
	found.report(&r)
	return r, nil
}

// noPod is the guilty pod of a run in which a process outside of all pods does the same.
const noPod = -1

// order returns the number of the guilty pod in each run.
func (c *Config) order() []int {
	first := rand.IntN(batchPods)
	var all []int
	for i := range c.Repeats {
		all = append(all, (first+i)%batchPods)
	}
	for range c.Nobody {
		all = append(all, noPod)
	}
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// run measures one run, in a sandbox of its own.
func (c *Config) run(ctx context.Context, name string, guilty int) (found run, v cgroup.Version, err error) {
	cpus, err := load.AllowedCPUs()
	if err != nil {
		return found, v, err
	}
	if len(cpus) < 2 {
		return found, v, fmt.Errorf("%w: there is one CPU, and innocent pods need another than the server's",
			sandbox.ErrUnusable)
	}
	s, err := sandbox.Open(Name, c.Config)
	if err != nil {
		return found, v, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	t := &trial{Sandbox: s, name: name, found: newRun(guilty, c.Seconds)}
	if err := t.begin(ctx, cpus[0]); err != nil {
		return found, v, err
	}
	err = t.measure(ctx)
	return t.found, s.Version(), err
}
