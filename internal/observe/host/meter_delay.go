package host

import (
	"bytes"
	"fmt"
	"math"
	"sort"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// mostTasks is how many tasks are asked in one measurement. Pods with more come in turn, less often than [everyOther], and one that
// alone has more is never known. By BenchmarkMeterDelay, in a virtual machine that others used as well (6.18), it takes 16 to 21 µs to
// ask a process of one task, and 5 µs for each more.
const mostTasks = 1000

// mostOwed is for how long a task waited that is told later than it was, see [delayedTask]. What is longer is not told: it was too
// long ago.
const mostOwed = 5 * time.Second

// delays finds for how long tasks wait for a CPU, which the kernel counts for each: the second number of its schedstat, in
// nanoseconds (Documentation/scheduler/sched-stats.rst). Processes are found in procfs, where each tells its cgroup: the groups' own
// lists show those of the reader's PID namespace only, and a container has one of its own.
type delays struct {
	proc      string // where procfs is mounted: to see pods, that of the host
	layout    cgroup.Layout
	processes map[int]*delayedProcess // by PID; nil: nobody asked yet
	pods      map[string][]*delayedProcess
	looked    int64              // the last measurement in which processes were looked for
	left      int                // tasks that may be asked in this measurement
	first     [everyOther]string // UID of the pod that is asked before all others, because the last time there was nothing left for it
	owes      bool               // one of those asked last owes something
	buf       [4 << 10]byte
}

// delayedProcess is a process, whatever it belongs to.
type delayedProcess struct {
	dir   string // in procfs
	inode uint64 // of that: another means another process
	uid   string // of its pod; "": of none
	born  int64  // the measurement in which it was found
	seen  int64  // the last one in which it was there
	tasks map[int]delayedTask
}

// delayedTask is one task of a process. The kernel counts its waiting only when that ends (sched_info_arrive, 6.18), which may be
// seconds later. So a task that has waited for longer than it was not looked at waited in the time before as well: the rest of that is
// told of the time after, so that it is not lost.
type delayedTask struct {
	waited uint64        // in nanoseconds
	owed   time.Duration // of that, what is not told yet
	seen   int64
}

// delayLook is a look for how long the tasks of a pod wait.
type delayLook struct {
	at    time.Duration // since boot; 0: never, or nobody was there to ask
	group cgroup.CPUStat
	owes  bool // not all was told
}

// measureDelays looks for how long the tasks of pods have waited since it last did. Nothing is known of those that began or ended
// meanwhile.
func (m *Meter) measureDelays() error {
	wanted := false
	for i := range m.pods {
		wanted = wanted || m.pods[i].detail.Delays
	}
	d := &m.delays
	if !wanted {
		d.processes, d.pods = nil, nil
		return nil
	}
	d.left = mostTasks
	if d.processes == nil || m.tick-d.looked >= seldom {
		if err := d.find(m.tick); err != nil {
			return fmt.Errorf("looking for processes: %w", err)
		}
	}
	first := &d.first[m.tick%everyOther]
	begin := sort.Search(len(m.pods), func(i int) bool { return m.pods[i].uid >= *first })
	*first = ""
	for n := range m.pods {
		i := (begin + n) % len(m.pods)
		if p := &m.pods[i]; p.detail.Delays && m.turn(p, everyOther) && !m.measureDelay(p, &m.load.Pods[i].Delay) {
			*first = p.uid
			break
		}
	}
	return nil
}

// measureDelay measures for how long the tasks of a pod wait, and how often its quota stops it in the same time. It reports whether it
// did, or never can: not if too many tasks were asked before.
func (m *Meter) measureDelay(p *meteredPod, delay *model.Delay) bool {
	now := delayLook{at: m.clock(bootClock), group: p.cpu.CPUStat}
	since := now.at - p.delayed.at
	if p.delayed.at == 0 || p.begin > m.tick-everyOther || since > longest {
		since = 0 // nothing to compare with
	}
	if since > 0 && p.cpu.at > p.delayed.at && now.group.Nanos == p.delayed.group.Nanos && !p.delayed.owes {
		// Nobody ran, so nobody has ceased to wait: there is nothing to ask.
		*delay = model.Delay{At: now.at, Stopped: now.stopped(&p.delayed)}
		p.delayed = now
		return true
	}
	all := m.delays.left == mostTasks
	if !all && m.delays.known(p.uid) > m.delays.left {
		return false
	}
	waited, compared, asked := m.delays.of(p.uid, since, m.tick)
	now.owes = m.delays.owes
	if compared {
		*delay = model.Delay{At: now.at, Permille: min(int64(math.Round(float64(waited)/float64(since)*1000)), 1000), Stopped: now.stopped(&p.delayed)}
	}
	if p.delayed = now; !asked {
		p.delayed.at = 0
	}
	return all || m.delays.left >= 0
}

// stopped returns in how many of the periods since an earlier look a quota stopped the pod, in thousandths.
func (l *delayLook) stopped(last *delayLook) int64 {
	if l.group.Periods <= last.group.Periods || l.group.Throttled < last.group.Throttled {
		return 0
	}
	return int64(min(1000*(l.group.Throttled-last.group.Throttled)/(l.group.Periods-last.group.Periods), 1000))
}

// find brings the processes to those that there are.
func (d *delays) find(tick int64) error {
	if d.processes == nil {
		d.processes = map[int]*delayedProcess{}
	}
	err := eachNumber(d.proc, func(_, pid int, inode uint64) {
		p := d.processes[pid]
		if p == nil || p.inode != inode {
			p = &delayedProcess{dir: d.proc + "/" + strconv.Itoa(pid), inode: inode, born: tick, tasks: map[int]delayedTask{}}
			d.processes[pid] = p
		}
		if p.seen = tick; p.uid == "" && tick-p.born < minute { // it enters the pod's group some time after it began
			p.uid = d.podOf(p.dir)
		}
	})
	if err != nil {
		return err
	}
	d.looked = tick
	d.pods = map[string][]*delayedProcess{}
	for pid, p := range d.processes {
		switch {
		case p.seen != tick:
			delete(d.processes, pid)
		case p.uid != "":
			d.pods[p.uid] = append(d.pods[p.uid], p)
		}
	}
	return nil
}

// podOf returns the UID of the pod that the process of a directory is of; "" if it is of none, or has ended.
func (d *delays) podOf(dir string) string {
	content, err := d.read(unix.AT_FDCWD, dir+"/cgroup")
	if err != nil {
		return ""
	}
	for part := range bytes.FieldsFuncSeq(content, func(r rune) bool { return r == '/' || r == '\n' }) {
		if uid, ok := d.layout.ParsePod(string(part)); ok {
			return uid
		}
	}
	return ""
}

// known returns how many tasks a pod had when it was asked last.
func (d *delays) known(uid string) (tasks int) {
	for _, p := range d.pods[uid] {
		tasks += len(p.tasks)
	}
	return tasks
}

// of returns for how long the tasks of a pod have waited in the time since they were asked last, all together, whether there are any
// that were, and whether there are any that could be asked now. Where that time is 0 nothing is compared.
func (d *delays) of(uid string, since time.Duration, tick int64) (waited time.Duration, compared, asked bool) {
	d.owes = false
	for _, p := range d.pods[uid] {
		_ = eachNumber(p.dir+"/task", func(fd, tid int, _ uint64) { // it fails if the process has ended
			if d.left--; d.left < 0 {
				return
			}
			now, ok := d.ask(fd, tid)
			if !ok {
				return
			}
			t := delayedTask{waited: now, seen: tick}
			if last, found := p.tasks[tid]; found && now >= last.waited && since > 0 {
				t.owed = last.owed + time.Duration(min(now-last.waited, math.MaxInt64/2))
				told := min(t.owed, since)
				t.owed = min(t.owed-told, mostOwed)
				waited += told
				compared = true
			}
			asked, d.owes = true, d.owes || t.owed > 0
			p.tasks[tid] = t
		})
		for tid, t := range p.tasks {
			if t.seen != tick {
				delete(p.tasks, tid)
			}
		}
	}
	return waited, compared && d.left >= 0, asked && d.left >= 0
}

// ask returns for how long a task has waited in its life, in nanoseconds; false if it has ended, or this kernel does not tell: one
// without CONFIG_SCHEDSTATS counts nothing.
func (d *delays) ask(fd, tid int) (waited uint64, ok bool) {
	content, err := d.read(fd, strconv.Itoa(tid)+"/schedstat")
	if err != nil {
		return 0, false
	}
	ran, rest, ok1 := nextNumber(content)
	now, _, ok2 := nextNumber(rest)
	return uint64(now), ok1 && ok2 && (ran != 0 || now != 0)
}

// read reads a file that comes whole in one read.
func (d *delays) read(dir int, path string) ([]byte, error) {
	fd, err := openat(dir, path, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer closeFile(fd)
	n, err := pread(fd, d.buf[:])
	return d.buf[:max(n, 0)], err
}

// eachNumber calls a function for each directory in one whose name is a number, with the open one.
func eachNumber(dir string, f func(fd, number int, inode uint64)) error {
	fd, err := openat(unix.AT_FDCWD, dir, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer closeFile(fd)
	for buf := make([]byte, 4<<10); ; {
		n, err := getdents(fd, buf)
		if err != nil || n <= 0 {
			return err
		}
		for b := buf[:n]; len(b) > 0; {
			var e dirent
			e, b = nextDirent(b)
			number, rest, ok := nextNumber(e.name)
			if ok && len(rest) == 0 && e.kind == unix.DT_DIR && number <= math.MaxInt32 {
				f(fd, int(number), e.inode)
			}
		}
	}
}
