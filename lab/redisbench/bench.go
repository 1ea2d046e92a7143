// Package redisbench measures the latency of Redis beside batch load: each mode at each load in a sandbox of its own,
// in random order, several times.
package redisbench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/waterline-io/waterline/internal/progress"
	"github.com/waterline-io/waterline/lab/kube"
	"github.com/waterline-io/waterline/lab/load"
	"github.com/waterline-io/waterline/lab/measure"
	"github.com/waterline-io/waterline/lab/sandbox"
)

const (
	settle   = 3 * time.Second // of each run at least, which do not count: the agent measures once a second, then settles
	attempts = 3               // at each run, if the generator was late or the CPU slow
)

// Connections is the number of connections of the generator.
const Connections = 16

// Mode says what runs beside Redis, and under which policy.
type Mode struct {
	Name     string
	Online   bool
	Crowd    bool   // memcached runs beside Redis
	Encoders int    // processes of ffmpeg that run, with a thread for each CPU; one alone leaves CPU unused
	Burns    bool   // stress-ng runs
	Stressor string // what it does, one of [Stressors]; "": it multiplies matrices
	Policy   string // text of the agent's policy; "": there is no agent
	// Figure adds to the policy that the server's own figure, see [load.FigureMetric], must not be higher than without
	// batch. Mode Alone must come before.
	Figure bool
	// Beside starts what else runs beside Redis, in pods that it adopts, and returns the function that ends it. nil:
	// nothing.
	Beside func(context.Context, *sandbox.Sandbox) (end func() error, err error)
}

// The names of the modes.
const (
	Alone        = "alone"
	BatchAlone   = "batch_alone"
	Plain        = "plain"
	Unsuppressed = "unsuppressed"
	Waterline    = "waterline"
)

// Cell is one thing to measure.
type Cell struct {
	Mode
	Lead  time.Duration   // of the run, which does not count
	Load  float64         // of the requests, by which cells are told apart: their mean, or the one that they rise to
	Rates load.Rates      // parts of one CPU that the requests take
	Rises []time.Duration // after the lead: when the rate rises at once; nil: never

	repeat  int
	attempt int
}

// Config says where and how to measure.
type Config struct {
	sandbox.Config
	Node    *kube.Host    // makes the pods; nil: the sandbox does
	Seconds int           // of measuring in each run
	Repeats int           // of each cell
	Minutes int           // after which no repeat begins but the first; 0: all do
	Latest  time.Duration // that the generator may be late, p99, before a run is discarded; 0: 1 ms
	Lookups bool          // requests look up members of sets that no cache holds; otherwise they compute
	AnyCPU  bool          // runs count whose server had a slow CPU
}

// later is what orders the first repeat: a policy with a figure needs to know the figure without batch.
func (c *Cell) later() int {
	if c.Name == Alone {
		return 0
	}
	return 1
}

// bench measures cells.
type bench struct {
	cfg     Config
	name    string // of the experiment
	steps   int    // of a request
	measure func(context.Context, Cell) (Run, error)
	found   Runs
}

// Measure measures every cell once in each repeat, in random order. The programs are those of batch.
func Measure(ctx context.Context, experiment string, cfg Config, cells []Cell, programs ...string) (Runs, error) {
	if cfg.Latest == 0 {
		cfg.Latest = load.LateLimit
	}
	cfg.OnNode = cfg.Node != nil
	b := &bench{cfg: cfg, name: experiment, found: Runs{Repeats: cfg.Repeats, Latest: cfg.Latest}}
	b.measure = b.run
	if err := b.prepare(ctx, programs); err != nil {
		return b.found, err
	}
	return b.found, b.all(ctx, cells)
}

func (b *bench) all(ctx context.Context, cells []Cell) error {
	cells = slices.Clone(cells)
	for i := range cells {
		cells[i].Lead = max(cells[i].Lead, settle)
	}
	began := time.Now()
	for repeat := range b.found.Repeats {
		if limit := time.Duration(b.cfg.Minutes) * time.Minute; repeat > 0 && limit > 0 && time.Since(began) >= limit {
			b.found.Repeats = repeat
			return nil
		}
		rand.Shuffle(len(cells), func(i, j int) { cells[i], cells[j] = cells[j], cells[i] })
		if repeat == 0 {
			slices.SortStableFunc(cells, func(a, b Cell) int { return a.later() - b.later() })
		}
		for _, cell := range cells {
			cell.repeat = repeat
			if err := b.try(ctx, cell); err != nil {
				return err
			}
		}
	}
	return nil
}

// try measures a cell until the generator was not late and the server's CPU not slow, three times at most. A look-up
// takes as long as batch lets it, so there the CPU is not judged.
func (b *bench) try(ctx context.Context, cell Cell) error {
	for cell.attempt = range attempts {
		run, err := b.measure(ctx, cell)
		if err != nil {
			return fmt.Errorf("mode %s: %w", cell.Name, err)
		}
		slow := !b.cfg.Lookups && !b.cfg.AnyCPU && run.slowCPU()
		if !cell.Online || !slow && run.lateP99() <= measure.Millis(b.found.Latest) {
			b.found.Counted = append(b.found.Counted, run)
			return nil
		}
		b.found.Discarded = append(b.found.Discarded, run)
	}
	return nil
}

// open makes a sandbox for one run. The returned function removes it and the run's pods.
func (b *bench) open() (*sandbox.Sandbox, func() error, error) {
	s, err := sandbox.Open(b.name, b.cfg.Config, sandbox.Cpuset)
	if err != nil || b.cfg.Node == nil {
		return s, func() error { return s.Close() }, err
	}
	return s, func() error { return errors.Join(s.Close(), b.cfg.Node.Clean(context.Background())) }, nil
}

// prepare measures how many steps a request must have, and describes the machine.
func (b *bench) prepare(ctx context.Context, programs []string) (err error) {
	for _, name := range append([]string{redisProgram}, programs...) {
		if _, err := findProgram(name); err != nil {
			return err
		}
	}
	s, closeAll, err := b.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeAll()) }()
	b.found.Machine = measure.DescribeMachine(s.Version())
	if b.cfg.Node != nil {
		b.found.Machine += ", " + b.cfg.Node.Describe()
		if err := b.cfg.Node.Govern(ctx, ""); err != nil {
			return err
		}
	}
	s.Report(progress.Step{Doing: "measuring what a request costs"})
	r := &run{Sandbox: s, node: b.cfg.Node}
	p := serverPod()
	if err := r.create(ctx, p); err != nil {
		return err
	}
	server, err := startRedis(ctx, s, p.Pod, b.cfg.Lookups)
	if err != nil {
		return err
	}
	b.steps, err = server.calibrate(ctx, s, p.Pod)
	return err
}

// run measures one cell once.
func (b *bench) run(ctx context.Context, cell Cell) (found Run, err error) {
	s, closeAll, err := b.open()
	if err != nil {
		return found, err
	}
	defer func() { err = errors.Join(err, closeAll()) }()
	awake, err := load.Awake()
	if err != nil {
		return found, err
	}
	defer awake.Close()
	r := &run{Sandbox: s, node: b.cfg.Node, cell: cell, seconds: b.cfg.Seconds, lookups: b.cfg.Lookups}
	if cell.Figure {
		if r.figure, err = b.figure(cell.Load); err != nil {
			return found, err
		}
	}
	defer func() {
		if r.end != nil {
			err = errors.Join(err, r.end())
		}
	}()
	if err := r.begin(ctx); err != nil {
		return found, err
	}
	found, err = r.measure(ctx, b.steps)
	if err == nil && b.cfg.Node != nil {
		found.Lost, err = b.cfg.Node.Lost(ctx)
	}
	return found, err
}
