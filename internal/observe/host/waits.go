package host

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// Bounds of [Waits]. A read of an open schedstat file takes 1.2 µs; with openat and close it takes 5.5 µs (6.18,
// virtual machine). Bounds of one sample hold for samples that are 100 ms apart, see [Waits.steps].
const (
	tasksOfPod   = 16               // sampled of one pod
	tasksRunning = 64               // read in one sample, of pods that ran since their last one
	tasksAsleep  = 16               // read in one sample, of all other pods
	turns        = 25               // samples in which each other pod has its turn, if there are many
	mostOpen     = 2048             // files kept open, unless a quarter of RLIMIT_NOFILE is less
	relist       = 5 * time.Second  // processes, and the tasks of a pod, are listed again after this time
	refind       = time.Second      // processes are listed again after this time while a pod has none
	listings     = 8                // of pods in one sample
	stir         = time.Millisecond // a pod that ran or waited for less in a sample is asleep

	step      = 100 * time.Millisecond
	mostSteps = 10 // bounds of one sample grow up to this
)

// Waits samples how long the tasks of pods run and wait for a CPU, from their schedstat files, see [Schedstat]. It
// keeps the files open. Of a pod with more than 16 tasks it prefers those that run.
//
// A sample reads at most 64 tasks of pods that ran since their last sample, and 16 of others, in turns; more of these
// only on a node with more than 400 tasks. A sample that is a second after the last one reads ten times as many.
// It is not safe for concurrent use.
type Waits struct {
	clock   func(id int32) time.Duration
	find    processes
	found   time.Duration // last search for processes; 0: never
	sampled time.Duration // last sample; 0: never
	open    int
	limit   int          // of open files
	pods    []waitingPod // ordered by UID
	next    [2]int       // pod whose turn is next: among those that ran, and among the others
}

// waitingPod is a pod whose tasks are sampled.
type waitingPod struct {
	sum    model.PodWait
	tasks  []waitingTask
	listed time.Duration // last listing of its tasks; 0: never
	more   bool          // it has tasks that are not sampled
	skip   int           // tasks that the next listing passes over, because others have their turn
	stirs  bool          // it ran, or waited, in its last sample
}

// waitingTask is a sampled task.
type waitingTask struct {
	tid  int
	fd   int
	last Schedstat
	idle bool // it did not run since the last listing
}

// NewWaits returns a sampler of the pods of one kubelet. proc is the mount point of the host's procfs.
func NewWaits(l cgroup.Layout, proc string) *Waits {
	return &Waits{clock: sinceBoot, limit: atMostOpen(mostOpen), find: processes{proc: proc, layout: l}}
}

// Close closes all files. A later sample opens them again, and goes on with the sums.
func (w *Waits) Close() {
	for i := range w.pods {
		w.closeTasks(&w.pods[i])
	}
	w.found = 0
	w.find.forget()
}

// Sample samples the pods that the marks name. It allocates nothing while no process or task begins.
//
// Of tasks that began since the last sample only the time after this one counts. A pod without processes, or whose
// tasks cannot be read, keeps its sums and their time.
func (w *Waits) Sample(marks []model.WaitMark) error {
	w.follow(marks)
	now := w.clock(bootClock)
	var err error
	if since := now - w.found; w.found == 0 || since >= relist || since < 0 || since >= refind && w.lacks() {
		if err = w.find.find(int64(now / time.Second)); err != nil {
			err = fmt.Errorf("listing the processes in %s: %w", w.find.proc, err)
		}
		w.found = now
	}
	steps := w.steps(now)
	left := w.read(now, true, steps*tasksRunning)
	w.read(now, false, left+steps*max(tasksAsleep, w.open/turns))
	w.list(now, steps*listings) // after they were read: a task that did not run may lose its place
	return err
}

// steps returns by which factor the bounds of this sample grow, because less is sampled in a second.
func (w *Waits) steps(now time.Duration) int {
	since := now - w.sampled
	w.sampled = now
	return int(min(max(since/step, 1), mostSteps))
}

// lacks reports whether no task of a pod was found yet.
func (w *Waits) lacks() bool {
	return slices.ContainsFunc(w.pods, func(p waitingPod) bool { return p.sum.At == 0 && len(p.tasks) == 0 })
}

// Append appends what was sampled of each pod, ordered by UID.
func (w *Waits) Append(to []model.PodWait) []model.PodWait {
	for i := range w.pods {
		to = append(to, w.pods[i].sum)
	}
	return to
}

// follow sets the sampled pods.
func (w *Waits) follow(marks []model.WaitMark) {
	if slices.EqualFunc(w.pods, marks, func(p waitingPod, m model.WaitMark) bool { return p.sum.UID == m.UID }) {
		return
	}
	old := w.pods
	w.pods = make([]waitingPod, 0, len(marks))
	for _, m := range marks {
		p := waitingPod{sum: model.PodWait{UID: m.UID}}
		if i, found := slices.BinarySearchFunc(old, m.UID, func(p waitingPod, uid string) int {
			return strings.Compare(p.sum.UID, uid)
		}); found {
			p, old[i].tasks = old[i], nil
		}
		w.pods = append(w.pods, p)
	}
	for i := range old {
		w.closeTasks(&old[i])
	}
	w.next = [2]int{}
}

// list lists the tasks of some pods.
func (w *Waits) list(now time.Duration, left int) {
	for i := range w.pods {
		p := &w.pods[i]
		since := now - p.listed
		if p.listed != 0 && 0 <= since && since < relist && (len(p.tasks) > 0 || p.listed >= w.found) {
			continue
		}
		if left--; left < 0 {
			return
		}
		w.listPod(p, now)
		p.listed = now
	}
}

// listPod looks for tasks to sample. Where not all can be sampled, tasks that ran stay, and others take turns.
func (w *Waits) listPod(p *waitingPod, now time.Duration) {
	if p.more {
		p.tasks = slices.DeleteFunc(p.tasks, func(t waitingTask) bool {
			if t.idle {
				w.closeTask(&t)
			}
			return t.idle
		})
	}
	others, opened := 0, 0 // tasks that are not sampled yet
	for _, process := range w.find.pods[p.sum.UID] {
		_ = process.eachTask(func(fd, tid int, _ uint64) {
			if slices.ContainsFunc(p.tasks, func(t waitingTask) bool { return t.tid == tid }) {
				return
			}
			if others++; others <= p.skip || len(p.tasks) >= tasksOfPod || w.open >= w.limit {
				return
			}
			if t, ok := w.openTask(fd, tid); ok {
				p.tasks = append(p.tasks, t)
				opened++
			}
		})
	}
	p.more = others > opened
	if p.skip += opened; p.skip >= others {
		p.skip = 0
	}
	for i := range p.tasks {
		p.tasks[i].idle = true
	}
	if p.sum.At == 0 && len(p.tasks) > 0 {
		p.sum.At = now // from now on it is known
	}
}

// openTask opens the file of a task, whose time begins to count now.
func (w *Waits) openTask(dir, tid int) (t waitingTask, ok bool) {
	fd, err := openat(dir, strconv.Itoa(tid)+"/schedstat", unix.O_RDONLY)
	if err != nil {
		return t, false // it has ended
	}
	w.open++
	t = waitingTask{tid: tid, fd: fd}
	if t.last, ok = w.readTask(fd); !ok {
		w.closeTask(&t)
	}
	return t, ok
}

func (w *Waits) closeTask(t *waitingTask) {
	closeFile(t.fd)
	w.open--
}

func (w *Waits) closeTasks(p *waitingPod) {
	for i := range p.tasks {
		w.closeTask(&p.tasks[i])
	}
	p.tasks, p.listed, p.more, p.skip = nil, 0, false, 0
}

// readTask reads the file of a task. It returns false if the task has ended, or if this kernel counts nothing, as
// without CONFIG_SCHED_INFO.
func (w *Waits) readTask(fd int) (Schedstat, bool) {
	n, err := pread(fd, w.find.buf[:])
	if err != nil || n <= 0 {
		return Schedstat{}, false
	}
	s, err := ParseSchedstat(w.find.buf[:n])
	return s, err == nil && s != Schedstat{}
}

// read reads the tasks of the pods whose turn it is, among those that stir or the others, and returns how many tasks
// more could have been read.
func (w *Waits) read(now time.Duration, stirring bool, most int) (left int) {
	next := &w.next[0]
	if !stirring {
		next = &w.next[1]
	}
	left = most
	for n := range w.pods {
		i := (*next + n) % len(w.pods)
		p := &w.pods[i]
		if p.stirs != stirring || p.sum.At == now || len(p.tasks) == 0 {
			continue
		}
		if len(p.tasks) > left && left < most {
			*next = i
			return 0
		}
		left -= len(p.tasks)
		w.readPod(p, now)
	}
	return max(left, 0)
}

// readPod reads all sampled tasks of a pod.
func (w *Waits) readPod(p *waitingPod, now time.Duration) {
	var ran, waited time.Duration
	var times int64
	ended := false
	for i := range p.tasks {
		t := &p.tasks[i]
		s, ok := w.readTask(t.fd)
		if !ok {
			w.closeTask(t)
			t.fd, ended = -1, true
			continue
		}
		since := s.Since(t.last)
		if t.last = s; since.Ran < 0 || since.Waited < 0 {
			continue
		}
		t.idle = t.idle && since.Ran == 0
		ran, waited, times = ran+since.Ran, waited+min(since.Waited, math.MaxInt64/2), times+max(since.Times, 0)
	}
	if ended {
		p.tasks = slices.DeleteFunc(p.tasks, func(t waitingTask) bool { return t.fd < 0 })
		p.listed = 0 // others may have begun
	}
	if len(p.tasks) > 0 || ran > 0 {
		p.sum.At, p.sum.Ran, p.sum.Waited = now, p.sum.Ran+ran, p.sum.Waited+waited
		p.sum.Times += times
	}
	p.stirs = ran+waited >= stir
}
