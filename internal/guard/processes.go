package guard

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The command lines that matter have these words.
const managerClass = "org.apache.hadoop.yarn.server.nodemanager.NodeManager"

// executorClasses are the main classes of Spark's executors that catch the decommission signal.
var executorClasses = [...]string{
	"org.apache.spark.executor.YarnCoarseGrainedExecutorBackend", "org.apache.spark.executor.CoarseGrainedExecutorBackend",
}

// variable is in the environment of each process of a container. YARN's launch script exports it.
const variable = "CONTAINER_ID="

// masterVariable is in the environment of masters only: the ResourceManager adds it.
const masterVariable = "APPLICATION_WEB_PROXY_BASE="

// capabilities are those that it takes to signal processes of other users: the file with an environment is only for its
// owner to read (DAC_OVERRIDE), and so is what is in it (SYS_PTRACE).
const capabilities = "KILL, SYS_PTRACE and DAC_OVERRIDE"

// maxEnvironment bounds what is read of an environment. The kernel allows 6 MiB of arguments and environment; YARN's
// variable comes early.
const maxEnvironment = 1 << 20

// maxArguments bounds what is read of a command line. A classpath may come before the main class.
const maxArguments = 256 << 10

// ticks is the unit of start times in /proc, USER_HZ, which is the same on all architectures that matter.
const ticks = 100

// process is one process, which its start time tells from another with the same number.
type process struct {
	pid    int
	parent int
	start  uint64 // in ticks since boot
	uid    uint32
}

// identity tells a process from all others since the machine booted.
type identity struct {
	pid   int
	start uint64
}

func (p *process) identity() identity { return identity{p.pid, p.start} }

// found is a process that may be a container's.
type found struct {
	process
	names  string // the container's id in its environment
	master bool   // by its environment
	in     string // the container that it belongs to; "": none
	known  bool   // whether in was found out
}

// group are the processes of a container.
type group struct {
	members       []process
	started       time.Time // when the first of them started
	first         process   // the oldest below the NodeManager; the oldest of all if none is, as after it started again
	below         bool      // first is below the NodeManager
	decommissions bool
	master        bool // YARN's launch script gave it what only masters get
}

// scanner finds the NodeManager and the processes of containers.
type scanner struct {
	proc    string
	manager process   // its pid is 0 while there is none
	missing time.Time // since when there is none; zero: there is one
	others  bool      // containers run as other users
	hidden  bool      // containers have processes that the guard may not look at
	remote  bool      // the ResourceManager can be asked to signal those
	resumed bool      // what an earlier guard left stopped goes on

	at     time.Time // of the last scan
	of     map[string]*group
	boot   time.Time
	buffer bytes.Buffer
}

// find makes sure that the NodeManager is known. given is its pid, if the caller knows it. It is no error if there has
// been none for a short time: it starts after the guard, and may start again.
func (s *scanner) find(now time.Time, given int) error {
	if s.manager.pid != 0 {
		if p, err := s.read(s.manager.pid); err == nil && p.start == s.manager.start {
			return nil
		}
		s.manager = process{}
	}
	if given != 0 {
		p, err := s.read(given)
		if err != nil {
			return fmt.Errorf("process %d: %w", given, err)
		}
		s.manager = p
		return nil
	}
	err := s.each(func(pid int) error {
		p, err := s.read(pid)
		// A container runtime is outside of the pod's process namespace. A process whose parent ended has the pod's first
		// process as its parent. So what a tenant started is not taken for the NodeManager.
		if err != nil || p.parent != 0 || s.manager.pid != 0 && s.manager.start <= p.start {
			return gone(err)
		}
		if args, err := s.arguments(pid); err == nil && hasArgument(args, managerClass) {
			s.manager = p
		}
		return nil
	})
	switch {
	case s.manager.pid != 0:
		s.missing = time.Time{}
	case s.missing.IsZero():
		s.missing = now
	case err == nil && now.Sub(s.missing) >= time.Minute:
		return errNoManager
	}
	return err
}

// scan finds the processes of all containers.
func (s *scanner) scan(now time.Time, others bool) error {
	s.others = others
	if s.manager.pid == 0 {
		return nil // there is an error about that already
	}
	all, denied, before := map[int]*found{}, false, s.known()
	parents, strangers := map[int]int{}, []int(nil)
	err := s.each(func(pid int) error {
		p, err := s.read(pid)
		if err != nil {
			return gone(err)
		}
		parents[pid] = p.parent
		if !others && p.uid != s.manager.uid && p.uid != 0 {
			strangers = append(strangers, pid)
		}
		foreign := !others && p.uid != s.manager.uid || p.uid == 0 && s.manager.uid != 0
		if foreign || pid == s.manager.pid || pid == os.Getpid() {
			return nil
		}
		if id := before[p.identity()]; id != "" { // a tenant may have many processes, with a long environment each
			all[pid] = &found{process: p, in: id, known: true}
			return nil
		}
		id, isMaster, err := s.container(pid)
		if errors.Is(err, fs.ErrPermission) {
			denied = true
			return nil
		}
		if err == nil {
			all[pid] = &found{process: p, names: id, master: isMaster}
		}
		return gone(err)
	})
	if err != nil {
		return err
	}
	s.of, s.at = s.groups(all, parents), now
	s.resume()
	strangers = slices.DeleteFunc(strangers, func(pid int) bool { return !below(s.manager.pid, pid, parents) })
	s.hidden = denied || len(strangers) > 0
	switch {
	case denied && others:
		return errors.New("environments of processes cannot be read, so their containers get no signals: containers of " +
			"other users need the capabilities " + capabilities + ", which spec.yarn.containerExecutor: Linux gives")
	case len(strangers) > 0 && !s.remote:
		return errors.New("processes below the NodeManager run as other users, so their containers get no signals: " +
			"the Linux container executor needs spec.yarn.containerExecutor: Linux")
	}
	return nil
}

// below reports whether a process descends from another.
func below(ancestor, pid int, parents map[int]int) bool {
	for range parents { // a number may have been reused meanwhile, so there may be a circle
		if pid = parents[pid]; pid == ancestor {
			return true
		}
	}
	return false
}

// known returns the containers of the processes that the last scan found.
func (s *scanner) known() map[identity]string {
	all := map[identity]string{}
	for id, g := range s.of {
		for _, p := range g.members {
			all[p.identity()] = id
		}
	}
	return all
}

// groups returns the processes of each container. A process stays in its container, and so does what it starts: a
// tenant may start one with another environment, or without any. Only what no process of a container started belongs to
// the container that it names, and is not its first process where there is another: the ids of containers are
// consecutive, so a tenant can name one that is still to come, which would then count as older than it is.
func (s *scanner) groups(all map[int]*found, parents map[int]int) map[string]*group {
	var belongs func(p *found) string
	belongs = func(p *found) string {
		if p.known {
			return p.in
		}
		p.known = true // a number may have been reused meanwhile, so there may be a circle
		if parent := all[p.parent]; parent != nil && parent.uid == p.uid && parent.start <= p.start {
			p.in = belongs(parent)
		}
		if p.in == "" {
			p.in = p.names
		}
		return p.in
	}
	of := map[string]*group{}
	for _, pid := range slices.Sorted(maps.Keys(all)) {
		p := all[pid]
		id := belongs(p)
		if id == "" {
			continue
		}
		g := of[id]
		if g == nil {
			g = &group{}
			if before := s.of[id]; before != nil {
				g.master = before.master
			}
			of[id] = g
		}
		g.members = append(g.members, p.process)
		if below := below(s.manager.pid, pid, parents); len(g.members) == 1 || below != g.below && below ||
			below == g.below && p.start < g.first.start {
			g.first, g.below = p.process, below
		}
		g.master = g.master || p.master
		g.decommissions = g.decommissions || s.decommissions(p.pid)
	}
	for id, g := range of {
		s.settle(id, g)
	}
	return of
}

// settle leaves out processes of other users than the container's.
func (s *scanner) settle(id string, g *group) {
	user := g.first.uid
	if slices.ContainsFunc(g.members, func(p process) bool { return p.uid != user }) {
		user = s.owner(id, g)
	}
	g.members = slices.DeleteFunc(g.members, func(p process) bool { return p.uid != user })
	g.started = s.bootTime().Add(time.Duration(g.first.start) * time.Second / ticks)
}

// owner returns the user of a container of which processes of several users have the id: that of the process which the
// container executor started for it, and otherwise that of the first one. The ids of containers are consecutive, so a
// tenant can name one that is still to come. The executor keeps the NodeManager's user by its real id, and has the
// container's id among its arguments.
func (s *scanner) owner(id string, g *group) uint32 {
	for _, p := range g.members {
		executor, err := s.read(p.parent)
		if err != nil || executor.uid != s.manager.uid || executor.pid == s.manager.pid {
			continue
		}
		if args, err := s.arguments(p.parent); err == nil && hasArgument(args, id) {
			g.first = p
			return p.uid
		}
	}
	return g.first.uid
}

// each calls f for each process.
func (s *scanner) each(f func(pid int) error) error {
	dir, err := os.Open(s.proc)
	if err != nil {
		return fmt.Errorf("looking for processes: %w", err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return fmt.Errorf("looking for processes: %w", err)
	}
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if err := f(pid); err != nil {
			return err
		}
	}
	return nil
}

// gone returns no error if a process has ended.
func gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}

func (s *scanner) path(pid int, file string) string {
	return filepath.Join(s.proc, strconv.Itoa(pid), file)
}

// read reads what tells a process from others. The owner of its directory is its effective user, or root where the
// process may not be traced.
func (s *scanner) read(pid int) (process, error) {
	content, err := os.ReadFile(s.path(pid, "stat"))
	if err != nil {
		return process{}, err
	}
	p, err := parseStat(content)
	if err != nil {
		return process{}, fmt.Errorf("%s: %w", s.path(pid, "stat"), err)
	}
	status, err := os.ReadFile(s.path(pid, "status"))
	if err != nil {
		return process{}, err
	}
	uid, err := strconv.ParseUint(field(status, "Uid:"), 10, 32)
	if err != nil {
		return process{}, fmt.Errorf("%s has no user: %w", s.path(pid, "status"), err)
	}
	p.uid = uint32(uid)
	return p, nil
}

// parseStat parses /proc/PID/stat. The name of the program, in parentheses, may contain anything. A process that has
// ended and was not waited for is not there. One whose first thread alone has ended looks the same, except that it has
// other threads.
func parseStat(content []byte) (process, error) {
	first, _, found := bytes.Cut(content, []byte(" "))
	i := bytes.LastIndexByte(content, ')')
	var rest []string
	if found && i >= 0 {
		rest = strings.Fields(string(content[i+1:]))
	}
	const state, parent, threads, start = 0, 1, 17, 19 // after the name
	if len(rest) <= start {
		return process{}, fmt.Errorf("%.60q is no stat of a process", content)
	}
	if n, err := strconv.Atoi(rest[threads]); rest[state] == "Z" && n <= 1 && err == nil {
		return process{}, fs.ErrNotExist
	}
	pid, err := strconv.Atoi(string(first))
	p, err2 := strconv.Atoi(rest[parent])
	at, err3 := strconv.ParseUint(rest[start], 10, 64)
	return process{pid: pid, parent: p, start: at}, errors.Join(err, err2, err3)
}

// field returns the first word of a line of /proc/PID/status.
func field(status []byte, name string) string {
	for line := range strings.Lines(string(status)) {
		if rest, found := strings.CutPrefix(line, name); found {
			if words := strings.Fields(rest); len(words) > 0 {
				return words[0]
			}
		}
	}
	return ""
}

// container returns the id that a process has in its environment, "" if it has none, and whether it is a master by its
// environment.
func (s *scanner) container(pid int) (id string, isMaster bool, err error) {
	f, err := os.Open(s.path(pid, "environ"))
	if err != nil {
		return "", false, err
	}
	defer f.Close()
	s.buffer.Reset()
	if _, err := s.buffer.ReadFrom(io.LimitReader(f, maxEnvironment)); err != nil {
		return "", false, err
	}
	id, isMaster = parseEnvironment(s.buffer.Bytes())
	if s.buffer.Cap() > 64<<10 {
		s.buffer = bytes.Buffer{} // a rare one must not be kept
	}
	return id, isMaster, nil
}

// parseEnvironment returns the id of a container in an environment, and whether the environment is a master's.
func parseEnvironment(environment []byte) (id string, isMaster bool) {
	for one := range bytes.SplitSeq(environment, []byte{0}) {
		if value, found := bytes.CutPrefix(one, []byte(variable)); found && id == "" {
			id = string(value[:min(len(value), 128)])
		}
		isMaster = isMaster || bytes.HasPrefix(one, []byte(masterVariable))
	}
	return id, isMaster
}

// decommissions reports whether a process is a Spark executor that catches the decommission signal. It would kill one
// that does not catch it.
func (s *scanner) decommissions(pid int) bool {
	args, err := s.arguments(pid)
	if err != nil || !hasArgument(args, executorClasses[:]...) {
		return false
	}
	status, err := os.ReadFile(s.path(pid, "status"))
	if err != nil {
		return false
	}
	caught, err := strconv.ParseUint(field(status, "SigCgt:"), 16, 64)
	return err == nil && caught&(1<<(unix.SIGPWR-1)) != 0
}

// arguments returns the beginning of a process's command line.
func (s *scanner) arguments(pid int) ([]byte, error) {
	f, err := os.Open(s.path(pid, "cmdline"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxArguments))
}

func hasArgument(args []byte, any ...string) bool {
	for one := range bytes.SplitSeq(args, []byte{0}) {
		if slices.Contains(any, string(one)) {
			return true
		}
	}
	return false
}

// bootTime returns when the machine booted, by the clock of now.
func (s *scanner) bootTime() time.Time {
	if s.boot.IsZero() {
		var up unix.Timespec
		if unix.ClockGettime(unix.CLOCK_BOOTTIME, &up) != nil {
			return time.Time{}
		}
		s.boot = time.Now().Add(-time.Duration(up.Nano())).Round(0)
	}
	return s.boot
}
