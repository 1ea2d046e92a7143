package host

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// Bounds of [Waits]. A read of an open schedstat file takes 1.2 µs; with openat and close it takes 5.5 µs (6.18,
// virtual machine). Once a second, with cold caches, that is about 3 and 12 µs. Bounds of one sample hold for samples
// that are 100 ms apart, see [Waits.steps].
const (
	tasksOfPod   = 16               // sampled of one pod; fewer if a node has more than mostOpen/tasksOfPod pods
	tasksRunning = 48               // read in one sample, of pods that stir
	tasksAsleep  = 16               // read in one sample, of all other pods
	tasksLeast   = 3                // read of one pod in one sample, if it has as many
	turnWithin   = time.Second / 2  // for all pods, as far as tasksLeast allows
	maxTurn      = time.Second      // since its last sample, after which a pod is read beyond these bounds
	mostOpen     = 2048             // files kept open, unless a quarter of RLIMIT_NOFILE is less
	relist       = 5 * time.Second  // processes, and the tasks of a pod, are listed again after this time
	relistAll    = 20 * time.Second // or after this time, if tasks of it run, and all others had a turn
	refind       = time.Second      // or after this time, while a pod has no task or lost one
	searchTime   = time.Minute      // for which processes of a pod that has none any more are searched for
	minStir      = time.Millisecond // a pod that ran or waited for less in a sample is asleep
	stirTime     = 2 * time.Second  // for which a pod or a task that ran counts as one that runs

	// A listing of the tasks of one pod goes on where the one before ended. Its bounds, and those of all listings of one
	// sample, in directories that are listed and files that are opened, which take 8 µs each.
	processesOfListing = 16
	entriesOfListing   = 256
	entriesOfUnit      = 8  // listed in the time of one file that is opened
	unitsOfStep        = 16 // for pods of which no task is sampled; as many again for those that are listed soon
	unitsOfTurns       = 4  // for all others
	tasksAtFirst       = 2  // of a pod, so that no other one waits for long until it is seen at all

	step      = 100 * time.Millisecond
	mostSteps = 25 // bounds of one sample grow up to this
)

// Waits samples how long the tasks of pods run and wait for a CPU, from their schedstat files, see [Schedstat]. It
// keeps the files open. Of a pod with more than 16 tasks it prefers those that run. Pods share the files that may be
// open, so on a node with 250 pods it samples eight tasks of each.
//
// A sample reads 48 tasks of pods that ran lately, and 16 of others, in turns, and all pods that were not read for a
// second. So however many there are, a pod is read each second, or in each sample if samples are further apart. On a
// node with many pods, a sample reads only some tasks of a pod, three at least, and those that ran lately first.
//
// Whatever the processes of one pod do, others are sampled as ever: all work of a sample is bounded, and pods take
// turns in it. It is not safe for concurrent use.
type Waits struct {
	clock   func(id int32) time.Duration
	only    bool // this kernel has no pressure of pods, so nothing else is known of a pod that is not sampled
	find    processes
	tasks   numbers
	found   time.Duration // end of the last search for processes; 0: there was none
	sampled time.Duration // last sample; 0: never
	open    int
	limit   int          // of open files, unless there are more pods
	pods    []waitingPod // ordered by UID
	next    [2]int       // pod that is read next: among those that ran, and among the others
	list    [3]int       // pod that is listed next in each class, see [waitingPod.class]
	name    []byte       // buffer of a path that ends in a null byte
	system  *system      // the node's own services
}

// waitingPod is a pod whose tasks are sampled.
type waitingPod struct {
	sum     model.PodWait
	tasks   []waitingTask
	listed  time.Duration // last listing of its tasks; 0: never
	soon    bool          // it is listed again after refind: tasks have ended, or were not all looked for
	more    bool          // it has tasks that are not sampled
	turned  bool          // in the last listing, the last one of these had its turn
	process int           // the listing goes on with this process of it
	offset  int64         // and at this position in the process's tasks
	stirred time.Duration // last sample in which it ran, or waited; 0: never
	turn    [2]int        // task that is read next: among those that stir, and among the others
}

// waitingTask is a sampled task.
type waitingTask struct {
	tid  int
	fd   int
	last Schedstat
	idle bool          // it was not seen to run since the last listing
	read time.Duration // its last read since then; 0: it was not read
	ran  time.Duration // last read which showed that it ran; 0: never
}

// NewWaits returns a sampler of the pods of one kubelet. proc is the mount point of the host's procfs.
func NewWaits(m Mount, l cgroup.Layout, proc string) *Waits {
	_, noPressure := os.Stat(filepath.Join(proc, "pressure/cpu"))
	return &Waits{
		clock: sinceBoot, only: m.Version == cgroup.V1 || noPressure != nil, limit: atMostOpen(mostOpen),
		find: processes{procReader: procReader{proc: proc}, layout: l, most: mostKnown}, system: newSystem(l, proc),
	}
}

// Close closes all files. A later sample opens them again, and goes on with the sums.
func (w *Waits) Close() {
	for i := range w.pods {
		w.closeTasks(&w.pods[i])
	}
	w.found = 0
	w.find.forget()
	w.system.close()
}

// Sample samples the pods that the marks name, and the node's own services if they do. It allocates nothing while no
// process or task begins.
//
// Of tasks that began since the last sample only the time after this one counts. A pod without processes, or whose
// tasks cannot be read, keeps its sums and their time.
func (w *Waits) Sample(marks []model.WaitMark) error {
	now := w.clock(bootClock)
	w.follow(w.system.sample(marks, now))
	steps := w.steps(now)
	var err error
	since := now - w.found
	if w.find.dir.isOpen || w.found == 0 || since >= relist || since < 0 || since >= refind && w.lacks(now) {
		var ended bool
		if ended, err = w.find.search(now, steps); err != nil {
			err = fmt.Errorf("listing the processes in %s: %w", w.find.proc, err)
		}
		if ended {
			w.found = now
		}
	}
	each := w.each(steps)
	left := w.read(now, true, each, steps*tasksRunning)
	w.read(now, false, each, left+steps*tasksAsleep)
	// After they were read: a task that did not run may lose its place.
	for class, units := range [...]int{unseen: unitsOfStep, changed: unitsOfStep, settled: unitsOfTurns} {
		w.listSome(now, class, steps*units)
	}
	return err
}

// steps returns by which factor the bounds of this sample grow, because less is sampled in a second.
func (w *Waits) steps(now time.Duration) int {
	since := now - w.sampled
	w.sampled = now
	return int(min(max(since/step, 1), mostSteps))
}

// lacks reports whether no task of a pod is known, though the pod is new or had one a while ago.
func (w *Waits) lacks(now time.Duration) bool {
	return slices.ContainsFunc(w.pods, func(p waitingPod) bool {
		return len(p.tasks) == 0 && (p.sum.At == 0 || now-p.sum.At < searchTime)
	})
}

// each returns how many tasks of one pod a sample reads: as many as the bounds allow if all pods have their turn within
// half a second. If samples are far apart, because batch is quiet, all are read: baselines are learned then.
func (w *Waits) each(steps int) int {
	if steps == mostSteps {
		return tasksOfPod
	}
	return min(max(tasksRunning*int(turnWithin/step)/max(len(w.pods), 1), tasksLeast), tasksOfPod)
}

// share returns how many tasks of each pod are sampled. Each pod has one, though it be beyond the limit.
func (w *Waits) share() int { return min(max(w.limit/max(len(w.pods), 1), 1), tasksOfPod) }

// Sampled counts the pods by how many of their tasks are sampled.
func (w *Waits) Sampled() model.SampledPods {
	var n model.SampledPods
	for i := range w.pods {
		switch p := &w.pods[i]; {
		case len(p.tasks) == 0:
			n.None++
		case p.more || p.soon:
			n.Some++
		default:
			n.All++
		}
	}
	return n
}

// Append appends what was sampled of each pod, ordered by UID.
func (w *Waits) Append(to []model.PodWait) []model.PodWait {
	to = w.system.append(to)
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
		if was := model.FindByUID(old, m.UID, func(p *waitingPod) string { return p.sum.UID }); was != nil {
			p, was.tasks = *was, nil
		}
		w.pods = append(w.pods, p)
	}
	for i := range old {
		w.closeTasks(&old[i])
	}
}

// Classes of pods. The listings of one class do not delay those of another, such as those of pods whose tasks end all
// the time.
const (
	unseen  = iota // none of its tasks is sampled
	changed        // it is listed again soon
	settled
)

func (p *waitingPod) class() int {
	switch {
	case len(p.tasks) == 0:
		return unseen
	case p.soon:
		return changed
	}
	return settled
}

// listSome lists the tasks of some pods of a class, in turns.
func (w *Waits) listSome(now time.Duration, class, units int) {
	next := &w.list[class]
	first := *next
	for n := range w.pods {
		i := (first + n) % len(w.pods)
		p := &w.pods[i]
		if p.class() != class || p.listed == now || !w.due(p, now) {
			continue
		}
		if units <= 0 {
			*next = i
			return
		}
		units -= w.listPod(p, now)
	}
}

// due reports whether the tasks of a pod must be listed.
func (w *Waits) due(p *waitingPod, now time.Duration) bool {
	since := now - p.listed
	most := relist
	switch {
	case p.soon:
		most = refind
	case p.more && p.turned && stirs(p.stirred, now):
		most = relistAll
	}
	if p.listed == 0 || since < 0 || since >= most {
		return true
	}
	_, grew := w.find.of(p.sum.UID)
	return len(p.tasks) == 0 && grew > p.listed
}

// listPod looks for tasks to sample, and returns what that cost. Where not all can be sampled, tasks that ran stay, and
// others take turns.
func (w *Waits) listPod(p *waitingPod, now time.Duration) (units int) {
	pids, _ := w.find.of(p.sum.UID)
	had := len(p.tasks)
	p.tasks = slices.DeleteFunc(p.tasks, func(t waitingTask) bool {
		if p.more && t.idle && t.read != 0 {
			w.closeTask(&t)
			return true
		}
		return false
	})
	share, entries := w.share(), entriesOfListing
	for last := len(p.tasks) - 1; last >= share; last-- { // there are more pods now
		w.closeTask(&p.tasks[last])
		p.tasks = p.tasks[:last]
	}
	if p.process >= len(pids) {
		p.process, p.offset = 0, 0
	}
	whole := len(pids)
	if p.offset > 0 {
		whole++ // the beginning of that process comes last
	}
	most := min(whole, processesOfListing)
	if p.soon = had == 0 && whole > 0; p.soon {
		share, most = min(share, tasksAtFirst), 1
	}
	p.turned = false
	before, listed, ended := len(p.tasks), 0, true
	for ; listed < most && ended; listed++ {
		if ended = w.listProcess(p, int(pids[p.process]), share, &entries); ended {
			p.process, p.offset = (p.process+1)%len(pids), 0
			p.turned = p.turned || p.process == 0
		}
	}
	p.more = !p.soon && !(ended && listed == whole)
	for i := range p.tasks {
		p.tasks[i].idle, p.tasks[i].read = true, 0
	}
	p.listed = now
	if len(p.tasks) > 0 && (p.sum.At == 0 || had == 0 && w.only) {
		// From now on it is known. If its tasks end faster than they can be read, nothing more can be known of it, and it
		// must not make the harm of all pods unknown.
		p.sum.At = now
	}
	return listed + len(p.tasks) - before + (entriesOfListing-entries)/entriesOfUnit
}

// listProcess samples tasks of a process of a pod, from the pod's position in it on. It returns false if there are more
// than may be sampled or listed; the position is then that of the next one.
func (w *Waits) listProcess(p *waitingPod, pid, share int, entries *int) (ended bool) {
	if w.tasks.open(w.find.path(pid, "/task"), p.offset) != nil {
		return true
	}
	defer w.tasks.close()
	for {
		at := w.tasks.at
		tid, _, ok, _ := w.tasks.next()
		switch {
		case !ok:
			return true
		case slices.ContainsFunc(p.tasks, func(t waitingTask) bool { return t.tid == tid }):
			*entries--
			continue
		case *entries <= 0 || len(p.tasks) >= share:
			p.offset = at
			return false
		}
		*entries--
		if t, ok := w.openTask(w.tasks.fd, tid); ok {
			p.tasks = append(p.tasks, t)
		}
	}
}

// openTask opens the file of a task, whose time begins to count now.
func (w *Waits) openTask(dir, tid int) (t waitingTask, ok bool) {
	w.name = append(strconv.AppendInt(w.name[:0], int64(tid), 10), "/schedstat\x00"...)
	fd, err := openName(dir, &w.name[0], unix.O_RDONLY)
	if err != nil {
		return t, false // it has ended
	}
	w.open++
	t = waitingTask{tid: tid, fd: fd}
	if t.last, ok = w.find.readTask(fd); !ok {
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
	p.tasks, p.listed, p.soon, p.more, p.process, p.offset = nil, 0, false, false, 0, 0
}

// read reads the tasks of the pods whose turn it is, among those that stir or the others, and returns how many tasks
// more could have been read.
func (w *Waits) read(now time.Duration, stirring bool, each, most int) (left int) {
	next := &w.next[0]
	if !stirring {
		next = &w.next[1]
	}
	first, stopped := *next, false
	left = most
	for n := range w.pods {
		i := (first + n) % len(w.pods)
		p := &w.pods[i]
		if stirs(p.stirred, now) != stirring || p.sum.At == now || len(p.tasks) == 0 {
			continue
		}
		if left <= 0 && now-p.sum.At < maxTurn {
			if !stopped {
				*next, stopped = i, true
			}
			continue
		}
		left -= min(len(p.tasks), each)
		w.readPod(p, now, each)
	}
	return max(left, 0)
}

// stirs reports whether a pod or a task counts as one that runs, given when it was last seen to run.
func stirs(last, now time.Duration) bool { return last != 0 && now-last < stirTime }

// readPod reads so many of the sampled tasks of a pod at most, in turns: those that stir, and for a third of the reads,
// or what is left of them, others, which may have begun to run. What a task did counts whole when it is read.
func (w *Waits) readPod(p *waitingPod, now time.Duration, most int) {
	var ran, waited time.Duration
	var times int64
	ended := false
	rest := 0
	for i := range p.tasks {
		if !stirs(p.tasks[i].ran, now) {
			rest++
		}
	}
	awake := len(p.tasks) - rest
	rest = min(rest, max(most-awake, most/3))
	for turn, left := range [2]int{min(awake, most-rest), rest} {
		first := p.turn[turn]
		for n := range p.tasks {
			i := (first + n) % len(p.tasks)
			t := &p.tasks[i]
			if left == 0 {
				break
			}
			if stirs(t.ran, now) != (turn == 0) || t.read == now {
				continue
			}
			left--
			p.turn[turn] = i + 1
			t.read = now
			s, ok := w.find.readTask(t.fd)
			if !ok {
				w.closeTask(t)
				t.fd, ended = -1, true
				continue
			}
			since := s.Since(t.last)
			if t.last = s; since != (Schedstat{}) {
				t.ran = now
			}
			if since.Ran < 0 || since.Waited < 0 {
				continue
			}
			t.idle = t.idle && since.Ran == 0
			ran, waited = ran+since.Ran, waited+min(since.Waited, math.MaxInt64/2)
			times += max(since.Times, 0)
		}
	}
	if ended {
		p.tasks = slices.DeleteFunc(p.tasks, func(t waitingTask) bool { return t.fd < 0 })
		p.soon = true // others may have begun
	}
	if len(p.tasks) > 0 || ran > 0 {
		p.sum.At, p.sum.Ran, p.sum.Waited = now, p.sum.Ran+ran, p.sum.Waited+waited
		p.sum.Times += times
	}
	if ran+waited >= minStir {
		p.stirred = now
	}
}
