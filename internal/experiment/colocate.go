package experiment

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// Experiment colocate takes a quarter of an hour, and has options of its own.
const (
	ColocateName  = "colocate"
	ColocateAbout = "Redis beside ffmpeg and stress-ng, which would take everything: its latency, and what is left for them, with and without Waterline."
	// ColocateSeconds and ColocateRepeats are what it measures by default: each mode at each load so long, so many times.
	ColocateSeconds = 15
	ColocateRepeats = 5
)

const (
	settled     = 3 * time.Second // of each run, which does not count: the agent measures once a second and then holds
	connections = 16              // of the generator
	attempts    = 3               // at each run, if the generator was late
	onlineMilli = 1000            // that the server requests, which is what it wants at its peak
)

// ColocateConfig says what experiment colocate measures. Of the zero value everything is the default.
type ColocateConfig struct {
	Config
	Repeats int
	Loads   []float64     // parts of one CPU that the requests take together, each above 0 and below 1; nil: 0.3 and 0.6
	Policy  string        // file with a ColocationPolicy for mode waterline; "": one that suppresses by CPU set
	Latest  time.Duration // that the generator may be late, p99, before a run is discarded; 0: 1 ms
}

// mode is what runs beside the server, and what keeps it away.
type mode struct {
	name          string
	online, batch bool
	policy        string // that the agent goes by; "": there is no agent
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
		{name: modePlain, online: true, batch: true},
		{name: modeUnsuppressed, online: true, batch: true, policy: fmt.Sprintf(brimPolicy, "none")},
		{name: modeWaterline, online: true, batch: true, policy: policy},
		{name: modeBatch, batch: true},
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
	if cfg.Latest == 0 {
		cfg.Latest = latest * time.Millisecond
	}
	modes, err := cfg.modes()
	if err != nil {
		return Result{}, err
	}
	c := &colocate{ColocateConfig: cfg}
	c.measure = c.run
	c.found = Colocation{Loads: cfg.Loads, Repeats: cfg.Repeats, Latest: cfg.Latest, When: time.Now().UTC().Truncate(time.Second)}
	if err := c.prepare(ctx); err != nil {
		return Result{}, err
	}
	for repeat := range cfg.Repeats {
		if err := c.repeat(ctx, repeat, modes); err != nil {
			return Result{}, err
		}
	}
	return c.found.Result(), nil
}

// colocate is the experiment as it runs.
type colocate struct {
	ColocateConfig
	steps   int // of a request
	measure func(context.Context, cell) (colocated, error)
	found   Colocation
}

// cell is one thing to measure.
type cell struct {
	mode
	load    float64
	repeat  int
	attempt int
}

// repeat measures everything once.
func (c *colocate) repeat(ctx context.Context, repeat int, modes []mode) error {
	var cells []cell
	for _, m := range modes {
		if !m.online {
			cells = append(cells, cell{mode: m, repeat: repeat})
			continue
		}
		for _, load := range c.Loads {
			cells = append(cells, cell{mode: m, load: load, repeat: repeat})
		}
	}
	rand.Shuffle(len(cells), func(i, j int) { cells[i], cells[j] = cells[j], cells[i] })
	for _, cell := range cells {
		if err := c.try(ctx, cell); err != nil {
			return err
		}
	}
	return nil
}

// try measures until the generator was not late, if that does not take too often.
func (c *colocate) try(ctx context.Context, cell cell) error {
	for cell.attempt = range attempts {
		run, err := c.measure(ctx, cell)
		if err != nil {
			return fmt.Errorf("mode %s: %w", cell.name, err)
		}
		if !cell.online || run.late(0.99) <= inMillis(c.Latest) {
			c.found.runs = append(c.found.runs, run)
			return nil
		}
		c.found.discarded = append(c.found.discarded, run)
	}
	return nil
}

// lab makes a sandbox for one run. Each has its own, so that none finds what another left.
func (c *colocate) lab() (*lab, error) { return newLabIn(ColocateName, c.Config, true) }

// prepare finds out what a request must be, and on what it is measured.
func (c *colocate) prepare(ctx context.Context) (err error) {
	for _, name := range []string{"redis-server", "ffmpeg", "stress-ng"} {
		if _, err := program(name); err != nil {
			return err
		}
	}
	l, err := c.lab()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	c.found.Machine = DescribeMachine(l.box.mount.Version)
	if c.Node != nil {
		c.found.Machine += ", " + c.Node.Describe()
		if err := c.Node.Govern(ctx, ""); err != nil {
			return err
		}
	}
	l.tell(Progress{Doing: "measuring what a request costs"})
	p := serverPod()
	if err := l.create(ctx, p); err != nil {
		return err
	}
	r, err := l.startRedis(ctx, p)
	if err != nil {
		return err
	}
	c.steps, err = l.calibrate(ctx, r, p)
	return err
}

func serverPod() *pod { return &pod{name: "redis", qos: model.Burstable, requestMilli: onlineMilli} }

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
		return &pod{name: "ffmpeg", qos: model.BestEffort, batchMilli: each}, &pod{name: "stress-ng", qos: model.BestEffort, batchMilli: each}
	}
	return &pod{name: "ffmpeg", qos: model.Burstable, requestMilli: max(milli-onlineMilli-200, 100)}, &pod{name: "stress-ng", qos: model.BestEffort}
}

// run measures one cell once.
func (c *colocate) run(ctx context.Context, cell cell) (run colocated, err error) {
	l, err := c.lab()
	if err != nil {
		return run, err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	side := &sideBySide{lab: l, cell: cell, length: time.Duration(c.seconds(ColocateSeconds)) * time.Second}
	if err := side.begin(ctx); err != nil {
		return run, err
	}
	return side.measure(ctx, c.steps)
}
