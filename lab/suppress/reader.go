package suppress

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/lab/load"
	"github.com/waterline-io/waterline/lab/sandbox"
)

const (
	sampleEvery = 5 * time.Millisecond // or longer where a sample takes more than a twentieth of that, as under emulation
	firstRest   = 4 * time.Second
	backTimeout = 40 * time.Second // for batch to have its CPU back; the agent waits 30 s at most
)

const helperName = "step"

// Helper is the outside reader.
func Helper() sandbox.Helper { return sandbox.Helper{Name: helperName, Run: makeSteps} }

// stepping is the input of the outside reader.
type stepping struct {
	Version       cgroup.Version
	Online, Batch string        // files with the CPU time of the pods
	Quota, CPUs   string        // files of the batch pod
	PIDs          []int         // stopped processes that are the online load
	Steps         int           // how many
	Length        time.Duration // of each step
}

// makeSteps lets the online load run for a while, again and again, and samples every few milliseconds how much CPU
// batch may use and uses. It prints its scheduling class and a line for each step, see [step.String].
func makeSteps(in sandbox.HelperInput) error {
	var s stepping
	if err := in.Decode(&s); err != nil {
		return err
	}
	r, err := newReader(s)
	if err != nil {
		return err
	}
	return r.run(os.Stdout)
}

// reader lets online load begin and end, and samples batch.
type reader struct {
	stepping
	online, batch, quota, cpus int // file descriptors
	trace                      trace
	start                      time.Time
	cost                       time.Duration // of the quickest sample so far
}

func newReader(s stepping) (*reader, error) {
	r := &reader{stepping: s, start: time.Now()}
	r.trace.machine = 1000 * int64(runtime.NumCPU())
	for _, file := range []struct {
		path string
		fd   *int
	}{{s.Online, &r.online}, {s.Batch, &r.batch}, {s.Quota, &r.quota}, {s.CPUs, &r.cpus}} {
		fd, err := unix.Open(file.path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, fmt.Errorf("opening %q: %w", file.path, err)
		}
		*file.fd = fd
	}
	return r, nil
}

func (r *reader) run(out io.Writer) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if _, err := fmt.Fprintln(out, load.Prioritize()); err != nil {
		return fmt.Errorf("printing the scheduling class: %w", err)
	}
	rest := firstRest
	for range r.Steps {
		load.Nap(rest - lead)
		if err := r.step(); err != nil {
			return err
		}
		if _, err := fmt.Fprintln(out, r.trace.judge()); err != nil {
			return fmt.Errorf("printing a step: %w", err)
		}
		rest = restAfter(&r.trace)
	}
	return nil
}

// restAfter returns how long the online load rests after a step. Load that rises again within twice the time that the
// agent waited before it gave batch more is swinging load, and the agent then waits twice as long. It waited no longer
// than batch had less. That time is unknown if batch does not have its CPU back.
func restAfter(t *trace) time.Duration {
	last := t.samples[len(t.samples)-1]
	if last.milli < t.enough() {
		return firstRest
	}
	return 2*(last.at-t.began) + time.Second
}

// step makes one step.
func (r *reader) step() error {
	t := &r.trace
	t.samples = t.samples[:0]
	if err := r.sampleUntil(time.Since(r.start)+lead, nil); err != nil {
		return err
	}
	t.began = time.Since(r.start)
	if err := r.signal(unix.SIGCONT); err != nil {
		return err
	}
	err := r.sampleUntil(t.began+r.Length, nil)
	t.ended = time.Since(r.start)
	if err := errors.Join(err, r.signal(unix.SIGSTOP)); err != nil {
		return err
	}
	enough := t.enough()
	return r.sampleUntil(t.ended+backTimeout, func(x sample) bool { return x.milli >= enough })
}

// sampleUntil takes samples until a moment, or until a sample is the last one.
func (r *reader) sampleUntil(end time.Duration, last func(sample) bool) error {
	for {
		began := time.Since(r.start)
		x, err := r.sample()
		if err != nil {
			return err
		}
		if cost := x.at - began; r.cost == 0 || cost < r.cost {
			r.cost = cost
		}
		r.trace.samples = append(r.trace.samples, x)
		if x.at >= end || last != nil && last(x) {
			return nil
		}
		load.Nap(max(sampleEvery, 20*r.cost))
	}
}

// sample takes one sample. Its moment is after the last read.
func (r *reader) sample() (x sample, err error) {
	var buf [4096]byte
	read := func(fd int) []byte {
		n, failed := unix.Pread(fd, buf[:], 0)
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("taking a sample: %w", failed))
		}
		return buf[:max(n, 0)]
	}
	var failed [4]error
	x.online, failed[0] = sandbox.ParseUsage(r.Version, read(r.online))
	x.batch, failed[1] = sandbox.ParseUsage(r.Version, read(r.batch))
	var quota cgroup.Raw
	quota, failed[2] = cgroup.Parse(r.Version, model.Quota, read(r.quota), cgroup.Raw{})
	var cpus model.CPUSet
	cpus, failed[3] = model.ParseCPUs(string(bytes.TrimSpace(read(r.cpus))))
	x.milli = allowed(quota, cpus, r.trace.machine)
	x.at = time.Since(r.start)
	return x, errors.Join(err, errors.Join(failed[:]...))
}

// allowed returns how many milli-cores a pod may use that has a quota and CPUs, of a machine.
func allowed(quota cgroup.Raw, cpus model.CPUSet, machine int64) int64 {
	most := min(1000*int64(cpus.Len()), machine)
	return int64(min(model.Value(quota).QuotaCPUs()*1000, float64(most)))
}

// signal sends a signal to each process of the online load.
func (r *reader) signal(signal unix.Signal) error {
	for _, pid := range r.PIDs {
		if err := unix.Kill(pid, signal); err != nil {
			return fmt.Errorf("sending %s to the online load: %w", unix.SignalName(signal), err)
		}
	}
	return nil
}
