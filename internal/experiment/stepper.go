package experiment

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

const (
	sampleEvery = 5 * time.Millisecond // or longer where a look takes more than a twentieth of that, as under emulation
	firstRest   = 4 * time.Second
	noMore      = 40 * time.Second // batch that did not have it back by then is not waited for; the agent waits 30 s at most
)

// stepping says what the stepper does.
type stepping struct {
	files  []string // NAME=PATH: online and batch, whose CPU time it is; quota and cpus, of the batch pod
	pids   []int    // of the online pod, which are stopped
	steps  int
	length time.Duration // of each
}

// stepper lets online load begin and end, and looks at what becomes of batch.
type stepper struct {
	stepping
	fds     map[string]int
	version cgroup.Version
	trace   trace
	start   time.Time
	cost    time.Duration // of the quickest look so far
}

// makeSteps lets the processes of the online pod run for a while, again and again, and looks every few milliseconds at what
// batch may use and uses. It prints how it was scheduled and a line for each step, see [step.String].
func makeSteps(what stepping, out io.Writer) error {
	s := &stepper{stepping: what, fds: map[string]int{}, start: time.Now()}
	s.trace.machine = 1000 * int64(runtime.NumCPU())
	if err := s.open(); err != nil {
		return err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if _, err := fmt.Fprintln(out, hurry()); err != nil {
		return fmt.Errorf("printing how we run: %w", err)
	}
	rest := firstRest
	for range s.steps {
		nap(rest - lead)
		if err := s.step(); err != nil {
			return err
		}
		if _, err := fmt.Fprintln(out, s.trace.judge()); err != nil {
			return fmt.Errorf("printing a step: %w", err)
		}
		rest = restAfter(&s.trace)
	}
	return nil
}

// restAfter returns how long batch is left alone after a step. Online load that comes again within twice the time that the
// agent let pass before it gave batch more is one that swings to it, and it then lets twice that pass. It let no more pass than
// batch had less. Nobody knows how long that is if batch does not have it back.
func restAfter(t *trace) time.Duration {
	last := t.samples[len(t.samples)-1]
	if last.milli < t.enough() {
		return firstRest
	}
	return 2*(last.at-t.began) + time.Second
}

// open opens the files, by whose names it is known how they are written.
func (s *stepper) open() error {
	for _, file := range s.files {
		name, path, _ := strings.Cut(file, "=")
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("opening %s: %w", path, err)
		}
		s.fds[name] = fd
		if name == "quota" {
			s.version = cgroup.V1
			if filepath.Base(path) == cgroup.FileName(cgroup.V2, model.Quota) {
				s.version = cgroup.V2
			}
		}
	}
	for _, name := range []string{"online", "batch", "quota", "cpus"} {
		if _, found := s.fds[name]; !found {
			return fmt.Errorf("there is no --file %s=PATH", name)
		}
	}
	return nil
}

// step makes one.
func (s *stepper) step() error {
	t := &s.trace
	t.samples = t.samples[:0]
	if err := s.lookUntil(time.Since(s.start)+lead, nil); err != nil {
		return err
	}
	t.began = time.Since(s.start)
	if err := s.signal(unix.SIGCONT); err != nil {
		return err
	}
	err := s.lookUntil(t.began+s.length, nil)
	t.ended = time.Since(s.start)
	if err := errors.Join(err, s.signal(unix.SIGSTOP)); err != nil {
		return err
	}
	enough := t.enough()
	return s.lookUntil(t.ended+noMore, func(x sample) bool { return x.milli >= enough })
}

// lookUntil takes samples until a moment, or until one of them is that which was waited for.
func (s *stepper) lookUntil(end time.Duration, enough func(sample) bool) error {
	for {
		began := time.Since(s.start)
		x, err := s.look()
		if err != nil {
			return err
		}
		if cost := x.at - began; s.cost == 0 || cost < s.cost {
			s.cost = cost
		}
		s.trace.samples = append(s.trace.samples, x)
		if x.at >= end || enough != nil && enough(x) {
			return nil
		}
		nap(max(sampleEvery, 20*s.cost))
	}
}

// look takes one sample. Its moment is that at which all of it had been read.
func (s *stepper) look() (x sample, err error) {
	var buf [4096]byte
	read := func(name string) []byte {
		n, err1 := unix.Pread(s.fds[name], buf[:], 0)
		if err1 != nil {
			err = errors.Join(err, fmt.Errorf("reading %s: %w", name, err1))
		}
		return buf[:max(n, 0)]
	}
	parse := func(err1 error) { err = errors.Join(err, err1) }
	var err1 error
	x.online, err1 = parseUsage(read("online"))
	parse(err1)
	x.batch, err1 = parseUsage(read("batch"))
	parse(err1)
	quota, err1 := cgroup.Parse(s.version, model.Quota, read("quota"), cgroup.Raw{})
	parse(err1)
	cpus, err1 := model.ParseCPUs(string(bytes.TrimSpace(read("cpus"))))
	parse(err1)
	x.milli = allowed(quota.Number, cpus, s.trace.machine)
	x.at = time.Since(s.start)
	return x, err
}

// allowed returns how many milli-cores a pod may use that has a quota, in microseconds, and CPUs, of a machine.
func allowed(quota int64, cpus model.CPUSet, machine int64) int64 {
	most := min(1000*int64(cpus.Len()), machine)
	if quota == model.Unlimited {
		return most
	}
	return min(quota*1000/model.DefaultQuotaPeriod, most)
}

// signal sends a signal to each process of the online pod.
func (s *stepper) signal(what unix.Signal) error {
	for _, pid := range s.pids {
		if err := unix.Kill(pid, what); err != nil {
			return fmt.Errorf("sending %s to the online load: %w", unix.SignalName(what), err)
		}
	}
	return nil
}
