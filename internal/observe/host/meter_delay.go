package host

import (
	"bytes"
	"fmt"
	"math"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// mostTasks is how many tasks are asked in one measurement, at about 10 µs each. Pods beyond that are not measured.
const mostTasks = 1000

// delays finds for how long tasks wait for a CPU, which the kernel counts for each: the second number of its schedstat, in
// nanoseconds (Documentation/scheduler/sched-stats.rst). Processes are found in procfs, where each tells its cgroup: the groups' own
// lists show those of the reader's PID namespace only, and a container has one of its own.
type delays struct {
	proc      string // where procfs is mounted: to see pods, that of the host
	layout    cgroup.Layout
	processes map[int]*delayedProcess // by PID; nil: nobody asked yet
	looked    int64                   // the last measurement in which they were looked for
	left      int                     // tasks that may be asked in this measurement
	buf       [4 << 10]byte
}

// delayedProcess is a process, whatever it belongs to.
type delayedProcess struct {
	inode uint64 // of its directory: another means another process
	uid   string // of its pod; "": of none
	seen  int64  // the last measurement in which it was there
	tasks map[int]delayedTask
}

type delayedTask struct {
	waited uint64 // in nanoseconds
	seen   int64
}

// measureDelays looks for how long the tasks of pods have waited since it last did. Nothing is known of those that began or ended
// meanwhile.
func (m *Meter) measureDelays(closer Closer) error {
	wanted := false
	for i := range m.pods {
		wanted = wanted || closer.Waits(m.pods[i].uid)
	}
	d := &m.delays
	if !wanted {
		d.processes = nil
		return nil
	}
	d.left = mostTasks
	if d.processes == nil || m.tick-d.looked >= seldom {
		if err := d.find(m.tick); err != nil {
			return fmt.Errorf("looking for processes: %w", err)
		}
	}
	for i := range m.pods {
		p := &m.pods[i]
		if !closer.Waits(p.uid) || !m.turn(p, seldom) {
			continue
		}
		now := m.clock(bootClock)
		since := now - p.delayed
		waited, compared, asked := d.of(p.uid, m.tick)
		if compared && p.delayed != 0 && p.begin <= m.tick-seldom && since <= longest {
			m.load.Pods[i].Delay = model.Delay{At: now, Permille: min(int64(math.Round(float64(waited)/float64(since)*1000)), 1000)}
		}
		if p.delayed = now; !asked {
			p.delayed = 0
		}
	}
	return nil
}

// find brings the processes to those that there are.
func (d *delays) find(tick int64) error {
	if d.processes == nil {
		d.processes = map[int]*delayedProcess{}
	}
	err := eachNumber(d.proc, func(pid int, inode uint64) {
		p := d.processes[pid]
		if p == nil || p.inode != inode {
			p = &delayedProcess{inode: inode, uid: d.podOf(pid), tasks: map[int]delayedTask{}}
			d.processes[pid] = p
		}
		p.seen = tick
	})
	if err != nil {
		return err
	}
	d.looked = tick
	for pid, p := range d.processes {
		if p.seen != tick {
			delete(d.processes, pid)
		}
	}
	return nil
}

// podOf returns the UID of the pod that a process is of; "" if it is of none, or has ended.
func (d *delays) podOf(pid int) string {
	content, err := d.read(strconv.Itoa(pid) + "/cgroup")
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

// of returns for how long the tasks of a pod have waited since they were asked last, whether there are any that were, and whether there
// are any that could be asked now.
func (d *delays) of(uid string, tick int64) (waited uint64, compared, asked bool) {
	for pid, p := range d.processes {
		if p.uid != uid {
			continue
		}
		dir := strconv.Itoa(pid) + "/task"
		err := eachNumber(d.proc+"/"+dir, func(tid int, _ uint64) {
			if d.left--; d.left < 0 {
				return
			}
			content, err := d.read(dir + "/" + strconv.Itoa(tid) + "/schedstat")
			if err != nil {
				return // it has ended
			}
			ran, rest, ok := nextNumber(content)
			now, _, ok2 := nextNumber(rest)
			if !ok || !ok2 || ran == 0 && now == 0 { // a kernel without CONFIG_SCHEDSTATS counts neither
				return
			}
			if last, found := p.tasks[tid]; found && uint64(now) >= last.waited {
				waited += uint64(now) - last.waited
				compared = true
			}
			asked = true
			p.tasks[tid] = delayedTask{uint64(now), tick}
		})
		if err != nil {
			continue // likewise
		}
		for tid, t := range p.tasks {
			if t.seen != tick {
				delete(p.tasks, tid)
			}
		}
	}
	return waited, compared && d.left >= 0, asked && d.left >= 0
}

// read reads a file that comes whole in one read.
func (d *delays) read(path string) ([]byte, error) {
	fd, err := unix.Open(d.proc+"/"+path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }()
	n, err := pread(fd, d.buf[:])
	return d.buf[:max(n, 0)], err
}

// eachNumber calls a function for each directory in one whose name is a number.
func eachNumber(dir string, f func(number int, inode uint64)) error {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	for buf := make([]byte, 4<<10); ; {
		n, err := unix.Getdents(fd, buf)
		if err != nil || n <= 0 {
			return err
		}
		for b := buf[:n]; len(b) > 0; {
			var e dirent
			e, b = nextDirent(b)
			number, rest, ok := nextNumber(e.name)
			if ok && len(rest) == 0 && e.kind == unix.DT_DIR && number <= math.MaxInt32 {
				f(int(number), e.inode)
			}
		}
	}
}
