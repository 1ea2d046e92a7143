// Package colocate measures what batch load costs an online service, with and without Waterline.
package colocate

import (
	"context"
	"time"

	"github.com/waterline-io/waterline/internal/experiment/load"
	"github.com/waterline-io/waterline/internal/experiment/report"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/lab/agentrun"
	"github.com/waterline-io/waterline/test/lab/redisbench"
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
	Stressor          string    // one of [redisbench.Stressors], and no ffmpeg; "": ffmpeg, and stress-ng with matrices
	Settle            int       // seconds of each run in mode waterline that do not count; 0: Settle or NodeSettle
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
	r := report.Begin(Name, About)
	runs, err := redisbench.Measure(ctx, Name, cfg.Config, cells, redisbench.FFmpeg, redisbench.StressNG)
	if err != nil {
		return r, err
	}
	o := outcome{Runs: runs, loads: cfg.Loads}
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
	both := c.Stressor == ""
	batch := redisbench.Mode{Name: redisbench.BatchAlone, Encodes: both, Burns: true, Stressor: c.Stressor}
	cells := []redisbench.Cell{{Mode: batch}}
	beside := func(name, policy string) redisbench.Mode {
		m := batch
		m.Name, m.Online, m.Policy = name, true, policy
		return m
	}
	for _, m := range []redisbench.Mode{
		{Name: redisbench.Alone, Online: true},
		beside(redisbench.Plain, ""),
		beside(redisbench.Unsuppressed, unsuppressed),
		beside(redisbench.Waterline, policy),
	} {
		for _, part := range c.Loads {
			one := redisbench.Cell{Mode: m, Load: part, Rates: load.Rates{part}}
			if m.Name == redisbench.Waterline {
				one.Lead = time.Duration(c.Settle) * time.Second
			}
			cells = append(cells, one)
		}
	}
	return cells, nil
}
