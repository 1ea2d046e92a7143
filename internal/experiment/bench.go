package experiment

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

const (
	settled     = 3 * time.Second // of each run at least, which does not count: the agent measures once a second and then holds
	connections = 16              // of the generator
	attempts    = 3               // at each run, if the generator was late
)

// mode is what runs beside the server, and what keeps it away.
type mode struct {
	name    string
	online  bool
	encodes bool   // ffmpeg
	burns   bool   // stress-ng
	policy  string // that the agent goes by; "": there is no agent
}

// cell is one thing to measure.
type cell struct {
	mode
	lead    time.Duration // of the run, which does not count
	load    float64       // mean of the course
	course  course        // parts of one CPU that the requests take, while it is measured
	repeat  int
	attempt int
}

// bench measures cells, each in a sandbox of its own, so that none finds what another left.
type bench struct {
	Config
	name    string        // of the experiment
	length  time.Duration // of each run
	steps   int           // of a request
	measure func(context.Context, cell) (colocated, error)
	found   measured
}

// newBench returns a bench of an experiment that begins now. Of zeros everything is the default.
func newBench(name string, cfg Config, length time.Duration, repeats int, late time.Duration) *bench {
	if late == 0 {
		late = latest * time.Millisecond
	}
	b := &bench{Config: cfg, name: name, length: length}
	b.measure = b.run
	b.found = measured{When: time.Now().UTC().Truncate(time.Second), Repeats: repeats, Latest: late}
	return b
}

// all measures every cell once in each repeat, in random order.
func (b *bench) all(ctx context.Context, cells []cell) error {
	cells = slices.Clone(cells)
	for i := range cells {
		cells[i].lead = max(cells[i].lead, settled)
	}
	for repeat := range b.found.Repeats {
		rand.Shuffle(len(cells), func(i, j int) { cells[i], cells[j] = cells[j], cells[i] })
		for _, cell := range cells {
			cell.repeat = repeat
			if err := b.try(ctx, cell); err != nil {
				return err
			}
		}
	}
	return nil
}

// try measures until the generator was not late, if that does not take too often.
func (b *bench) try(ctx context.Context, cell cell) error {
	for cell.attempt = range attempts {
		run, err := b.measure(ctx, cell)
		if err != nil {
			return fmt.Errorf("mode %s: %w", cell.name, err)
		}
		if !cell.online || run.late(0.99) <= inMillis(b.found.Latest) {
			b.found.runs = append(b.found.runs, run)
			return nil
		}
		b.found.discarded = append(b.found.discarded, run)
	}
	return nil
}

// lab makes a sandbox for one run.
func (b *bench) lab() (*lab, error) { return newLab(b.name, b.Config, cpusetController) }

// prepare finds out what a request must be, and on what it is measured. The programs are those of batch.
func (b *bench) prepare(ctx context.Context, programs ...string) (err error) {
	for _, name := range append([]string{"redis-server"}, programs...) {
		if _, err := program(name); err != nil {
			return err
		}
	}
	l, err := b.lab()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	b.found.Machine = DescribeMachine(l.box.mount.Version)
	if b.Node != nil {
		b.found.Machine += ", " + b.Node.Describe()
		if err := b.Node.Govern(ctx, ""); err != nil {
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
	b.steps, err = l.calibrate(ctx, r, p)
	return err
}

// run measures one cell once.
func (b *bench) run(ctx context.Context, cell cell) (run colocated, err error) {
	l, err := b.lab()
	if err != nil {
		return run, err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	side := &sideBySide{lab: l, cell: cell, length: b.length}
	if err := side.begin(ctx); err != nil {
		return run, err
	}
	run, err = side.measure(ctx, b.steps)
	if err == nil && b.Node != nil {
		run.lost, err = b.Node.Lost(ctx)
	}
	return run, err
}
