package experiment

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// Experiment colocate takes a quarter of an hour, and has options of its own.
const (
	ColocateName  = "colocate"
	ColocateAbout = "Redis beside ffmpeg and stress-ng, which would take everything: its latency, and what is left for them, with and without Waterline."
	// ColocateSettle is for how many seconds mode waterline settles on a node, where the agent is the same in all runs. To it, load that
	// comes and goes with the runs swings, and batch gets back what that left only after up to 30 s.
	ColocateSettle = 45
	// ColocateSeconds and ColocateRepeats are what it measures by default: each mode at each load so long, so many times.
	ColocateSeconds = 15
	ColocateRepeats = 5
)

const onlineMilli = 1000 // that the server requests, which is what it wants at its peak

// ColocateConfig says what experiment colocate measures. Of the zero value everything is the default.
type ColocateConfig struct {
	Config
	Repeats int
	Loads   []float64     // parts of one CPU that the requests take together, each above 0 and below 1; nil: 0.3 and 0.6
	Policy  string        // file with a ColocationPolicy for mode waterline; "": one that suppresses by CPU set
	Settle  int           // seconds of each run in mode waterline that do not count; 0: as few as in the others, or on a node ColocateSettle
	Latest  time.Duration // that the generator may be late, p99, before a run is discarded; 0: 1 ms
}

const (
	modeAlone        = "alone"
	modeBatch        = "batch_alone"
	modePlain        = "plain"
	modeUnsuppressed = "unsuppressed"
	modeWaterline    = "waterline"
)

// modes lists them, those with the server first as a table should show them.
func (c *ColocateConfig) modes() ([]mode, error) {
	policy, err := policyText(c.Policy, "cpuset")
	if err != nil {
		return nil, err
	}
	return []mode{
		{name: modeAlone, online: true},
		{name: modePlain, online: true, encodes: true, burns: true},
		{name: modeUnsuppressed, online: true, encodes: true, burns: true, policy: fmt.Sprintf(brimPolicy, "None")},
		{name: modeWaterline, online: true, encodes: true, burns: true, policy: policy},
		{name: modeBatch, encodes: true, burns: true},
	}, nil
}

// Colocate runs Redis, asked for 1.5 ms of CPU at random moments, beside ffmpeg and stress-ng with as many threads as there
// are CPUs each: alone, as plain Kubernetes has it, with an agent that does not suppress, and with one that does. Every mode
// is measured at every load once in each repeat, in random order, with the same requests at the same moments. What it
// measures is in [Colocation.Result].
func Colocate(ctx context.Context, cfg ColocateConfig) (Result, error) {
	if cfg.Repeats == 0 {
		cfg.Repeats = ColocateRepeats
	}
	if cfg.Loads == nil {
		cfg.Loads = []float64{0.3, 0.6}
	}
	if cfg.Settle == 0 && cfg.Node != nil {
		cfg.Settle = ColocateSettle
	}
	modes, err := cfg.modes()
	if err != nil {
		return Result{}, err
	}
	b := newBench(ColocateName, cfg.Config, time.Duration(cfg.seconds(ColocateSeconds))*time.Second, cfg.Repeats, cfg.Latest)
	if err := b.prepare(ctx, "ffmpeg", "stress-ng"); err != nil {
		return Result{}, err
	}
	if err := b.all(ctx, cfg.cells(modes)); err != nil {
		return Result{}, err
	}
	c := Colocation{measured: b.found, Loads: cfg.Loads}
	return c.Result(), nil
}

// cells lists what is to be measured: every mode with the server at every load.
func (c *ColocateConfig) cells(modes []mode) []cell {
	var cells []cell
	for _, m := range modes {
		if !m.online {
			cells = append(cells, cell{mode: m})
			continue
		}
		for _, load := range c.Loads {
			one := cell{mode: m, load: load, course: course{load}}
			if m.name == modeWaterline {
				one.lead = time.Duration(c.Settle) * time.Second
			}
			cells = append(cells, one)
		}
	}
	return cells
}

func serverPod() *pod {
	return &pod{name: "redis", qos: model.Burstable, requestMilli: onlineMilli, lasts: true}
}

// batchPods are ffmpeg and stress-ng. To plain Kubernetes ffmpeg is a Burstable pod that requests what the server leaves of
// the node, save a little for the node's own pods, and stress-ng one that requests nothing. To Waterline they are batch pods
// that share the machine alike: all of it, or on a real node, which must have sold what they ask for, a small part. Neither how
// they share nor how much they may have depends on that.
func batchPods(sold, placed bool) (encoder, burner *pod) {
	milli := 1000 * int64(runtime.NumCPU())
	if sold {
		each := milli / 2
		if placed {
			each = milli / 32
		}
		return &pod{name: "ffmpeg", qos: model.BestEffort, batchMilli: each, lasts: true}, &pod{name: "stress-ng", qos: model.BestEffort, batchMilli: each, lasts: true}
	}
	return &pod{name: "ffmpeg", qos: model.Burstable, requestMilli: max(milli-onlineMilli-200, 100)}, &pod{name: "stress-ng", qos: model.BestEffort}
}
