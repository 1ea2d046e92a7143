package host

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// Bounds of one sample of the node's own services, which is taken once a second. An entry of /proc takes 1 µs, a look
// at a process 20 µs, a listing of its tasks 10 µs and 0.5 µs a task, and a read of an open file 1.2 µs.
const (
	systemTasks     = 64              // files of a group that are kept open
	systemProcesses = 512             // of a group that are remembered
	systemListed    = 2               // processes of a group whose tasks are listed
	systemEntries   = 256             // entries of /proc in one step of a search
	systemLooks     = 32              // processes that are looked at
	systemHurry     = 8               // times as much while the first two searches are under way
	systemSeen      = 32 << 10        // processes that a search remembers
	systemEvery     = time.Second     // between two samples
	systemSearch    = 5 * time.Second // between the beginnings of two searches
	systemTurn      = 10 * time.Second
)

// The groups, in the order of [model.SystemGroups].
const (
	noGroup = iota - 1 // of processes that are none of the node's own services
	kernelGroup
	kubeletGroup
	runtimeGroup
	servicesGroup
)

// system samples how long the tasks of the node's own services run and wait for a CPU, see [model.SystemGroups]. These
// are its services, by what no tenant can fake, because a tenant's process is in the cgroup of a pod:
//
//   - A process in the cgroup of a pod or a container, in user.slice or in machine.slice is none, whatever its name.
//   - Any other process of root that has the name of a kubelet or of a container runtime is one. It needs no unit.
//   - So is any process of a unit in system.slice. What it runs in cgroups of its own below the unit is none.
//   - So are kernel threads for which others wait, see [ownThread].
//
// Other processes outside of pods are none, such as those of a shell.
type system struct {
	procReader
	layout cgroup.Layout
	owner  uint32         // of kubelets and container runtimes: root
	groups [4]systemGroup // in the order of model.SystemGroups

	sampled  time.Duration // last sample; 0: never
	searched time.Duration // begin of the last search; 0: never
	turned   time.Duration // when tasks that did not run last lost their places
	searches int           // that have ended
	dir      numbers       // /proc, open while a search is under way
	tasks    numbers
	above    []byte // cgroup of the machine's services: that of process 1 without its init.scope
	before   map[int32]seenProcess
	seen     map[int32]seenProcess // by the search that is under way
}

// seenProcess is a process that a search found.
type seenProcess struct {
	inode uint32 // of its directory in procfs; another inode means another process with the same PID
	looks uint8  // at its cgroup. After the second one it is known.
}

// systemGroup is what is sampled of one group.
type systemGroup struct {
	sum   model.PodWait
	pids  []int32
	next  int // index of the process whose tasks are listed next
	tasks []waitingTask
}

func newSystem(l cgroup.Layout, proc string) *system {
	s := &system{procReader: procReader{proc: proc}, layout: l}
	for i, uid := range model.SystemGroups() {
		s.groups[i].sum.UID = uid
	}
	return s
}

// close closes all files. A later sample opens them again, and goes on with the sums.
func (s *system) close() {
	for i := range s.groups {
		g := &s.groups[i]
		for _, t := range g.tasks {
			closeFile(t.fd)
		}
		*g = systemGroup{sum: g.sum}
	}
	s.dir.close()
	s.sampled, s.searched, s.turned, s.searches, s.before, s.seen = 0, 0, 0, 0, nil, nil
}

// append appends what was sampled of each group that has a task.
func (s *system) append(to []model.PodWait) []model.PodWait {
	for i := range s.groups {
		if s.sampled != 0 && s.groups[i].sum.At != 0 {
			to = append(to, s.groups[i].sum)
		}
	}
	return to
}

// sample samples the services, if marks name them, and returns the other marks.
func (s *system) sample(marks []model.WaitMark, now time.Duration) []model.WaitMark {
	pods := 0
	for pods < len(marks) && model.IsSystem(marks[pods].UID) {
		pods++
	}
	switch since := now - s.sampled; {
	case pods == 0:
		if s.sampled != 0 {
			s.close()
		}
	case s.sampled == 0 || since < 0 || since >= systemEvery-step/2:
		s.sampled = now
		s.search(now)
		turn := now-s.turned >= systemTurn || now < s.turned
		if turn {
			s.turned = now
		}
		for i := range s.groups {
			s.readTasks(&s.groups[i], now)
			s.list(i, now, turn)
		}
	}
	return marks[pods:]
}

// readTasks reads all sampled tasks of a group.
func (s *system) readTasks(g *systemGroup, now time.Duration) {
	for i := range g.tasks {
		t := &g.tasks[i]
		is, ok := s.readTask(t.fd)
		if !ok { // it has ended
			closeFile(t.fd)
			t.fd = -1
			continue
		}
		since := is.Since(t.last)
		if t.last = is; since.Ran < 0 || since.Waited < 0 {
			continue
		}
		t.idle = t.idle && since.Ran == 0 && since.Waited == 0
		g.sum.Ran, g.sum.Waited = g.sum.Ran+since.Ran, g.sum.Waited+min(since.Waited, math.MaxInt64/2-g.sum.Waited)
		g.sum.Times += max(since.Times, 0)
	}
	g.tasks = slices.DeleteFunc(g.tasks, func(t waitingTask) bool { return t.fd < 0 })
	if len(g.tasks) > 0 {
		g.sum.At = now
	}
}

// list opens the files of tasks that are not sampled yet, of some processes of a group. While the group has its number
// of tasks, the listing stands still; it goes on when tasks that did not run for a while have lost their places.
func (s *system) list(group int, now time.Duration, turn bool) {
	g, processes := &s.groups[group], systemListed
	if group == kernelGroup {
		processes = systemLooks // each has one task
	}
	if turn {
		g.turn(8 * processes)
	}
	for range min(processes, len(g.pids)) {
		if len(g.tasks) >= systemTasks || len(g.pids) == 0 {
			return
		}
		g.next %= len(g.pids)
		pid := int(g.pids[g.next])
		if group == kernelGroup && g.samples(pid) {
			g.next++
			continue
		}
		if is, _ := s.look(pid); is != group { // another process may have its PID now
			g.pids = slices.Delete(g.pids, g.next, g.next+1)
			continue
		}
		g.next++
		if group == kernelGroup {
			s.openTask(g, pid, pid)
		} else {
			s.listTasks(g, pid)
		}
	}
	if g.sum.At == 0 && len(g.tasks) > 0 {
		g.sum.At = now
	}
}

// turn takes the places of tasks that did not run since the last turn, if there are too many tasks: as many places as
// others can soon take, those first that were taken first.
func (g *systemGroup) turn(most int) {
	if len(g.tasks) < systemTasks {
		most = 0
	}
	for i := range g.tasks {
		if t := &g.tasks[i]; t.idle && most > 0 {
			closeFile(t.fd)
			t.fd = -1
			most--
		} else {
			t.idle = true
		}
	}
	g.tasks = slices.DeleteFunc(g.tasks, func(t waitingTask) bool { return t.fd < 0 })
}

// samples reports whether a task is sampled.
func (g *systemGroup) samples(tid int) bool {
	return slices.ContainsFunc(g.tasks, func(t waitingTask) bool { return t.tid == tid })
}

// listTasks opens the files of the first tasks of a process.
func (s *system) listTasks(g *systemGroup, pid int) {
	if s.tasks.open(s.path(pid, "/task"), 0) != nil {
		return
	}
	defer s.tasks.close()
	for range systemTasks {
		tid, _, ok, _ := s.tasks.next()
		if !ok {
			return
		}
		s.openTask(g, pid, tid)
	}
}

// openTask opens the file of a task, unless it is sampled already. Its time begins to count now.
func (s *system) openTask(g *systemGroup, pid, tid int) {
	if len(g.tasks) >= systemTasks || g.samples(tid) {
		return
	}
	fd, err := openName(unix.AT_FDCWD, s.path(pid, "/task/"+strconv.Itoa(tid)+"/schedstat"), unix.O_RDONLY)
	if err != nil {
		return // it has ended
	}
	last, ok := s.readTask(fd)
	if !ok {
		closeFile(fd)
		return
	}
	g.tasks = append(g.tasks, waitingTask{tid: tid, fd: fd, last: last})
}

// search goes on with the search for services, or begins one. A step of it has a bounded size, and leaves out nobody.
func (s *system) search(now time.Duration) {
	steps, pause := 1, systemSearch
	if s.searches < 2 {
		steps, pause = systemHurry, systemEvery
	}
	if !s.dir.isOpen {
		if since := now - s.searched; s.searched != 0 && 0 <= since && since < pause-step/2 {
			return
		}
		s.searched = now
		s.before, s.seen = s.seen, s.before
		clear(s.seen)
		if s.seen == nil {
			s.seen = map[int32]seenProcess{}
		}
		s.above = s.root()
		if s.dir.open(s.path(0, ""), 0) != nil {
			return
		}
	}
	if ended, err := s.dir.walk(steps*systemEntries, steps*systemLooks, s.note); ended && err == nil {
		s.searches++
	}
}

// note records that a search found a process. It reports whether the process had to be looked at.
func (s *system) note(number int, inode uint32) (looked bool) {
	pid := int32(number)
	p := s.before[pid]
	if p.inode != inode {
		p = seenProcess{inode: inode}
	}
	if looked = p.looks < 2; looked {
		p.looks++
		// The process of a container begins in the cgroup of the runtime. So one look is not enough.
		group, sure := s.look(number)
		if sure {
			p.looks = 2
		}
		if group != noGroup && p.looks == 2 && !s.groups[group].add(pid) {
			p.looks = 1 // there may be a place the next time
		}
	}
	if len(s.seen) < systemSeen {
		s.seen[pid] = p
	}
	return looked
}

// add adds a process, and reports whether there was a place for it.
func (g *systemGroup) add(pid int32) bool {
	if slices.Contains(g.pids, pid) {
		return true
	}
	if len(g.pids) >= systemProcesses {
		return false
	}
	g.pids = append(g.pids, pid)
	return true
}

// root returns the cgroup of process 1 without its own part, which is the one above system.slice: "" on most machines.
// A node in a container has a longer one, and a reader with a cgroup namespace sees one such as /../../..
func (s *system) root() []byte {
	content := s.read(1, "/cgroup")
	path := content[bytes.LastIndexByte(bytes.TrimRight(content, "\n"), ':')+1:]
	return bytes.Clone(bytes.TrimRight(bytes.TrimSuffix(bytes.TrimSpace(path), []byte("/init.scope")), "/"))
}

// look returns the group of a process, and whether it will never have another one.
func (s *system) look(pid int) (group int, sure bool) {
	unit, excluded := s.unit(s.read(pid, "/cgroup"))
	if excluded {
		return noGroup, true
	}
	t, ok := parseThread(s.read(pid, "/stat"))
	switch {
	case !ok:
		return noGroup, false // it has ended
	case t.kernel:
		if t.realtime || !ownThread(t.name) {
			return noGroup, true
		}
		return kernelGroup, true
	}
	group = noGroup
	if unit {
		group = servicesGroup
	}
	if named := groupOfName(t.name); named != noGroup && s.owns(pid) {
		group = named
	}
	return group, false
}

// owns reports whether a process is one of the machine's owner.
func (s *system) owns(pid int) bool {
	var st unix.Stat_t
	return unix.Stat(s.proc+"/"+strconv.Itoa(pid), &st) == nil && st.Uid == s.owner
}

// unit reports whether a process with these cgroups is in a unit of system.slice, and whether it is excluded because it
// is in a pod, in a container or in the session of a user. A pod is one in any hierarchy. Of the rest, only those of
// CPU and of systemd say something: a program may have groups of its own in others.
func (s *system) unit(cgroups []byte) (unit, excluded bool) {
	if len(cgroups) == 0 {
		return false, true // it has ended
	}
	for line := range bytes.SplitSeq(bytes.TrimRight(cgroups, "\n"), []byte{'\n'}) {
		_, rest, _ := bytes.Cut(line, []byte{':'})
		controllers, path, _ := bytes.Cut(rest, []byte{':'})
		counts := len(controllers) == 0 || string(controllers) == "name=systemd" || hasCPU(controllers)
		below, within := bytes.CutPrefix(path, s.above)
		if within {
			path = below
		}
		depth, slice, in := 0, false, false
		for part := range bytes.SplitSeq(bytes.Trim(path, "/"), []byte{'/'}) {
			name := string(part)
			_, pod := s.layout.ParsePod(name)
			_, pods := cgroup.ParseLayout(name)
			_, container := cgroup.ContainerID(name)
			first := depth == 0
			if pod || pods || bytes.IndexByte(part, ':') >= 0 ||
				counts && (container || first && (name == "user.slice" || name == "machine.slice")) {
				return false, true
			}
			switch {
			case first:
				slice = counts && within && name == "system.slice"
			case bytes.HasSuffix(part, []byte(".slice")): // of the instances of a template
			default:
				in = slice && bytes.HasSuffix(part, []byte(".service"))
				slice = false
			}
			depth++
		}
		unit = unit || in
	}
	return unit, false
}
