// Package yarn models a pool of YARN's workers in a simulated cluster: its NodeManagers, its ResourceManager and its
// jobs. What happens to the workers is decided by package decide/cluster/pool, as in the manager.
package yarn

import (
	"time"

	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
	"github.com/waterline-io/waterline/internal/sim/jobs"
)

// Times of a NodeManager. They were seen with Hadoop 3.5.0.
const (
	podStarts = 4 * time.Second
	registers = 14 * time.Second // after its pod was made
)

// Worker is a worker with its NodeManager, as the ResourceManager and the kernel see it. A resize does what it does in
// Hadoop 3.5.0: nothing new is placed above the total, and what does not fit at the deadline is killed, the newest
// first.
type Worker struct {
	pool.Worker
	Node    pool.Node // what the agent reported of its node
	history pool.History

	made     time.Time
	up       bool
	total    pool.Size
	deadline time.Time
	tasks    []jobs.Task // the oldest first
	push     push
}

// push is how far a pushback of a worker is.
type push int

const (
	fits   push = iota // there is none
	asked              // containers do not fit, and have a deadline
	forced             // a container was killed for it
)

// Up reports whether the NodeManager is registered.
func (w *Worker) Up() bool { return w.up }

// Used returns what containers have.
func (w *Worker) Used(each pool.Size) pool.Size {
	n := int64(len(w.tasks))
	return pool.Size{MemoryMiB: n * each.MemoryMiB, VCores: n * each.VCores}
}

// free reports whether another container fits.
func (w *Worker) free(each pool.Size) bool {
	return w.up && w.Used(each).Plus(each).Fits(w.total)
}

// fits reports whether all containers fit into the total.
func (w *Worker) fits(each pool.Size) bool { return w.Used(each).Fits(w.total) }

// show says what the ResourceManager shows of the worker.
func (w *Worker) show(label string, each pool.Size) {
	w.Managers = nil
	if w.up {
		n := len(w.tasks)
		w.Managers = []pool.Manager{{
			ID: w.Name + ":45454", State: "RUNNING", Label: label, Total: w.total, Used: w.Used(each), Containers: n, Listed: n,
		}}
	}
}

// overdue returns the containers that do not fit and whose time is over, and forgets them.
func (w *Worker) overdue(now time.Time, each pool.Size) (killed []jobs.Task) {
	if w.deadline.IsZero() || now.Before(w.deadline) {
		return nil
	}
	for !w.fits(each) && len(w.tasks) > 0 {
		last := len(w.tasks) - 1
		killed, w.tasks = append(killed, w.tasks[last]), w.tasks[:last]
	}
	return killed
}

// run lets the containers work with so many cores for a time. It returns the work of those that have ended.
func (w *Worker) run(cores, seconds float64, each pool.Size) (ended float64) {
	if len(w.tasks) == 0 {
		return 0
	}
	speed := min(cores/float64(len(w.tasks)), float64(each.VCores))
	left := w.tasks[:0]
	for _, t := range w.tasks {
		if t.Done += speed * seconds; t.Done >= t.Work {
			ended += t.Work
			continue
		}
		left = append(left, t)
	}
	w.tasks = left
	return ended
}
