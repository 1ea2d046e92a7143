// Package colocate measures what batch load costs an online service, with and without Waterline.
package colocate

import (
	"context"
	"time"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/report"
	"github.com/waterline-io/waterline/lab/agentrun"
	"github.com/waterline-io/waterline/lab/load"
	"github.com/waterline-io/waterline/lab/redisbench"
)

// The experiment.
const (
	Name  = "colocate"
	About = "Redis beside ffmpeg and stress-ng, which would take the whole machine: its latency, and the CPU that is " +
		"left for " +
		"them, with and without Waterline."
	DefaultSeconds = 15
	DefaultRepeats = 5
	// Settle is for how many seconds mode waterline runs before it is measured: an agent that has just started gives
	// batch what arithmetic leaves until it knows how long the server waits, and the machine 5 s later.
	Settle = 10
	// NodeSettle is for how many seconds mode waterline settles on a real node, where all runs have the same agent. For
	// the agent, load that comes and goes with the runs is load that swings, and batch gets its CPU back only after up
	// to 30 s.
	NodeSettle = 45
)

// Config says what the experiment measures. The zero value is the default.
type Config struct {
	redisbench.Config           // Seconds is the length of each mode at each load
	Loads             []float64 // parts of one CPU that the requests take, each above 0 and below 1; nil: 0.3 and 0.6
	Policy            string    // file with a ColocationPolicy for mode waterline; "": one that suppresses by harm
	// Stressor is one of [redisbench.Stressors], which then is all batch; "": ffmpeg, and stress-ng with matrices. With
	// one, requests look up members of sets, and the policy of mode waterline names the server's own figure.
	Stressor string
	Steps    bool // requests rest, and rise at once to each load, in turn
	Crowd    bool // memcached with eight threads is a second online service
	Settle   int  // seconds of each run in mode waterline that do not count; 0: Settle or NodeSettle
}

// Run runs Redis, with random requests of 1.5 ms of CPU, beside ffmpeg and stress-ng with as many threads as there are
// CPUs each: alone, as plain Kubernetes runs them, with an agent that does not suppress, and with one that does. Every
// mode is measured at every load once in each repeat, in random order, with the same requests at the same moments. The
// metrics are those of [outcome.report].
func Run(ctx context.Context, cfg Config) (report.Result, error) {
	if cfg.Seconds == 0 {
		cfg.Seconds = DefaultSeconds
	}
	if cfg.Repeats == 0 {
		cfg.Repeats = DefaultRepeats
	}
	if cfg.Loads == nil {
		cfg.Loads = []float64{0.3, 0.6}
	}
	if cfg.Settle == 0 {
		cfg.Settle = Settle
		if cfg.Node != nil {
			cfg.Settle = NodeSettle
		}
	}
	cells, err := cfg.cells()
	if err != nil {
		return report.Result{}, err
	}
	// What such batch takes besides CPU time harms a server that needs memory, and only its own figure shows it.
	cfg.Lookups = cfg.Stressor != ""
	r := report.Begin(Name, About)
	runs, err := redisbench.Measure(ctx, Name, cfg.Config, cells, redisbench.FFmpeg, redisbench.StressNG)
	if err != nil {
		return r, err
	}
	o := outcome{Runs: runs, loads: cfg.Loads, stressor: cfg.Stressor}
	o.report(&r)
	return r, nil
}

// cells lists what is to be measured: every mode with the server at every load, and batch alone.
func (c *Config) cells() ([]redisbench.Cell, error) {
	policy, err := agentrun.Policy(c.Policy, model.SuppressOnHarm)
	if err != nil {
		return nil, err
	}
	unsuppressed, err := agentrun.Policy("", model.SuppressByNone)
	if err != nil {
		return nil, err
	}
	batch := redisbench.Mode{Name: redisbench.BatchAlone, Burns: true, Stressor: c.Stressor}
	if c.Stressor == "" {
		batch.Encoders = 1
	}
	cells := []redisbench.Cell{{Mode: batch}}
	beside := func(name, policy string) redisbench.Mode {
		m := batch
		m.Name, m.Online, m.Policy, m.Crowd = name, true, policy, c.Crowd
		return m
	}
	for _, m := range []redisbench.Mode{
		{Name: redisbench.Alone, Online: true, Crowd: c.Crowd},
		beside(redisbench.Plain, ""),
		beside(redisbench.Unsuppressed, unsuppressed),
		beside(redisbench.Waterline, policy),
	} {
		for _, part := range c.Loads {
			one := redisbench.Cell{Mode: m, Load: part, Rates: load.Rates{part}}
			if c.Steps {
				one.Rates, one.Rises = steps(part, time.Duration(c.Seconds)*time.Second)
			}
			if m.Name == redisbench.Waterline {
				one.Figure = c.Stressor != "" && c.Policy == "" && c.Node == nil
				one.Lead = time.Duration(c.Settle) * time.Second
			}
			cells = append(cells, one)
		}
	}
	return cells, nil
}

// steps returns a load that is near nothing and a part of a CPU in turn, for about two seconds each, and when it rises.
func steps(part float64, length time.Duration) (rates load.Rates, rises []time.Duration) {
	const rest = 0.05
	count := max(int(length/(4*time.Second)), 1)
	for i := range count {
		rates = append(rates, rest, part)
		rises = append(rises, length*time.Duration(2*i+1)/time.Duration(2*count))
	}
	return rates, rises
}
