package guard

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
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

// ticks is the unit of start times in /proc, USER_HZ, which is the same on all architectures that matter.
const ticks = 100

// process is one process, which its start time tells from another with the same number.
type process struct {
	pid    int
	parent int
	start  uint64 // in ticks since boot
	uid    uint32
}

// group are the processes of a container.
type group struct {
	members       []process
	started       time.Time // when the first of them started
	first         process
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
		if args, err := os.ReadFile(s.path(pid, "cmdline")); err == nil && hasArgument(args, managerClass) {
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
	of, denied := map[string]*group{}, false
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
		id, isMaster, err := s.container(pid)
		if errors.Is(err, fs.ErrPermission) {
			denied = true
			return nil
		}
		if err != nil || id == "" {
			return gone(err)
		}
		g := of[id]
		if g == nil {
			g = &group{first: p}
			of[id] = g
		}
		g.members = append(g.members, p)
		if p.start < g.first.start {
			g.first = p
		}
		g.master = g.master || isMaster
		g.decommissions = g.decommissions || s.decommissions(pid)
		return nil
	})
	if err != nil {
		return err
	}
	for _, g := range of {
		g.settle(s.bootTime())
	}
	s.of, s.at = of, now
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

// settle leaves out processes of other users than the first, which YARN started: an id is not known before.
func (g *group) settle(boot time.Time) {
	kept := g.members[:0]
	for _, p := range g.members {
		if p.uid == g.first.uid {
			kept = append(kept, p)
		}
	}
	g.members = kept
	g.started = boot.Add(time.Duration(g.first.start) * time.Second / ticks)
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

// parseStat parses /proc/PID/stat. The name of the program, in parentheses, may contain anything.
func parseStat(content []byte) (process, error) {
	first, _, found := bytes.Cut(content, []byte(" "))
	i := bytes.LastIndexByte(content, ')')
	var rest []string
	if found && i >= 0 {
		rest = strings.Fields(string(content[i+1:]))
	}
	const parent, start = 1, 19 // after the name
	if len(rest) <= start {
		return process{}, fmt.Errorf("%.60q is no stat of a process", content)
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
	for rest := environment; len(rest) > 0; {
		var one []byte
		one, rest, _ = bytes.Cut(rest, []byte{0})
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
	args, err := os.ReadFile(s.path(pid, "cmdline"))
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

func hasArgument(args []byte, any ...string) bool {
	for rest := args; len(rest) > 0; {
		var one []byte
		one, rest, _ = bytes.Cut(rest, []byte{0})
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
