package yarn

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/sim/jobs"
)

// Settings describe a pool.
type Settings struct {
	pool.Settings
	Overhead  model.Amount // that a worker's pod requests besides the floor
	Container pool.Size    // of each container
	// Schedule returns whether the i-th of n workers is to run, and when it must have stopped; nil: always.
	Schedule func(now time.Time, i, n int) (wanted bool, end time.Time)
}

// Request returns what the pod of a worker requests.
func (s *Settings) Request() model.Amount {
	core := max(s.Core, 1)
	return model.Amount{CPU: s.Floor.VCores * 1000 / core, Memory: s.Floor.MemoryMiB << 20}.Plus(s.Overhead)
}

// Pool is a pool with a place for a worker on each node.
type Pool struct {
	Workers []*Worker
	Jobs    *jobs.Queue
	// Count counts only what happens while Counts is set.
	Counts bool
	Count  Count

	s     Settings
	since time.Time
	order []int // of workers, for placing
}

// Count is what happened to workers and containers.
type Count struct {
	Killed          int     // containers
	Lost            float64 // core-seconds that they had worked
	Starts, Resizes int     // of NodeManagers
	// Pushbacks is how often containers of a worker got a deadline, because the worker was to shrink or to stop, from
	// then until all fitted. Forced is how many of them ended with a killed container. Both count when they end.
	Pushbacks, Forced int
}

// ForcedShare returns the share of pushbacks that ended with a killed container.
func (c *Count) ForcedShare() float64 {
	if c.Pushbacks == 0 {
		return 0
	}
	return float64(c.Forced) / float64(c.Pushbacks)
}

// New returns a pool for so many nodes. Its ResourceManager is up since a time.
func New(s Settings, nodes int, queue *jobs.Queue, since time.Time) *Pool {
	p := &Pool{Jobs: queue, s: s, since: since}
	for i := range nodes {
		p.Workers = append(p.Workers, &Worker{Worker: pool.Worker{Name: fmt.Sprintf("w%02d", i), Label: s.Label}})
		p.order = append(p.order, i)
	}
	return p
}

// Core returns how many vcores a CPU is worth.
func (p *Pool) Core() int64 { return p.s.Core }

// Overhead returns what a worker's pod needs besides its containers.
func (p *Pool) Overhead() model.Amount { return p.s.Overhead }

// Live lets the NodeManager of a worker start and register, and kills what does not fit and whose time is over.
func (p *Pool) Live(i int, now time.Time) {
	w := p.Workers[i]
	if w.Pod != nil && w.Pod.Started.IsZero() && now.Sub(w.made) >= podStarts {
		w.Pod.Started = now
	}
	if w.Pod != nil && !w.up && now.Sub(w.made) >= registers {
		w.up, w.total = true, p.s.Floor
	}
	p.kill(w, w.overdue(now, p.s.Container))
	p.pushed(w)
}

// pushed counts a pushback of a worker that is over: its containers fit.
func (p *Pool) pushed(w *Worker) {
	if w.push == fits || !w.fits(p.s.Container) {
		return
	}
	p.Count.Pushbacks += p.one()
	if w.push == forced {
		p.Count.Forced += p.one()
	}
	w.push = fits
}

// Used returns what the containers of a worker have.
func (p *Pool) Used(i int) pool.Size { return p.Workers[i].Used(p.s.Container) }

// Run lets the containers of a worker work with so many cores for a time. It returns the work of those that have ended.
func (p *Pool) Run(i int, cores, seconds float64) (ended float64) {
	return p.Workers[i].run(cores, seconds, p.s.Container)
}

// kill counts containers of a worker that were killed, and queues their work again.
func (p *Pool) kill(w *Worker, tasks []jobs.Task) {
	if len(tasks) > 0 {
		w.push = forced
	}
	for _, t := range tasks {
		if p.Counts {
			p.Count.Killed++
			p.Count.Lost += t.Done
		}
		p.Jobs.Again(t)
	}
}

// Place gives waiting containers to the NodeManagers with the fewest.
func (p *Pool) Place() {
	slices.SortStableFunc(p.order, func(a, b int) int {
		return cmp.Compare(len(p.Workers[a].tasks), len(p.Workers[b].tasks))
	})
	for _, i := range p.order {
		for w := p.Workers[i]; w.free(p.s.Container); {
			t, more := p.Jobs.Take()
			if !more {
				return
			}
			w.tasks = append(w.tasks, t)
		}
	}
}

// Round lets the manager do a round. changed is called for each worker whose pod was made or deleted.
func (p *Pool) Round(now time.Time, changed func(i int)) {
	in := pool.Input{Now: now, Settings: p.s.Settings, RM: pool.RM{Known: true, Labels: true, Since: p.since}}
	for i, w := range p.Workers {
		w.history = w.history.See(now, w.Node.Rest(), w.Node.Spare(), p.s.Window)
		w.Figures = w.history.Windows(p.s.Window).Figures(func(rest model.Amount) pool.Size {
			beyond := pool.Size{
				MemoryMiB: max(rest.Memory, 0) >> 20, VCores: max(rest.CPU, 0) * max(p.s.Core, 1) / 1000,
			}
			return pool.Allowance(p.s.Floor, beyond, 1)
		})
		w.Allowance, w.Room, w.Sells = w.Figures.Now, w.Node.Room(p.s.Request()), w.Node.Selling
		w.Wanted, w.End = true, time.Time{}
		if p.s.Schedule != nil {
			w.Wanted, w.End = p.s.Schedule(now, i, len(p.Workers))
		}
		w.show(p.s.Label, p.s.Container)
		in.Workers = append(in.Workers, w.Worker)
	}
	for i, s := range pool.Next(&in) {
		p.carry(i, &s, now, changed)
	}
}

func (p *Pool) carry(i int, s *pool.Step, now time.Time, changed func(i int)) {
	w := p.Workers[i]
	if w.Pod != nil {
		w.Pod.Marks = s.Marks
	}
	switch s.Verb {
	case pool.CreatePod:
		p.Start(i, now)
		p.Count.Starts += p.one()
		changed(i)
	case pool.DeletePod:
		p.Stop(i, now)
		changed(i)
	case pool.Resize:
		p.Resize(i, s.Size, now.Add(s.Within))
	}
}

// Start makes the pod of a worker.
func (p *Pool) Start(i int, now time.Time) {
	w := p.Workers[i]
	w.Pod, w.made = &pool.Pod{}, now
}

// Stop ends the pod of a worker and all that runs in it.
func (p *Pool) Stop(i int, now time.Time) {
	w := p.Workers[i]
	killed := w.tasks
	w.Pod, w.up, w.tasks, w.Ended = nil, false, nil, now
	w.total, w.deadline = pool.Size{}, time.Time{}
	p.kill(w, killed)
	p.pushed(w)
}

// Resize gives a worker another total, and what does not fit time until a deadline.
func (p *Pool) Resize(i int, total pool.Size, deadline time.Time) {
	w := p.Workers[i]
	if total != w.total { // the ResourceManager ignores one that it has already, deadline included
		w.total, w.deadline = total, deadline
		p.Count.Resizes += p.one()
	}
	if w.push == fits && !w.fits(p.s.Container) {
		w.push = asked
	}
}

// one is 1 where things count.
func (p *Pool) one() int {
	if p.Counts {
		return 1
	}
	return 0
}
