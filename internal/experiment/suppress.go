package experiment

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/internal/model"
)

// Experiment suppress takes forty minutes, and has options of its own.
const (
	SuppressName  = "suppress"
	SuppressAbout = "Online load comes at once beside batch that has the whole machine: how long until batch is kept to what is left, and until it has it back."
	// SuppressSteps and SuppressSeconds are what it measures by default: so many steps, each so long.
	SuppressSteps   = 100
	SuppressSeconds = 6
	// SuppressBy is the method by which batch is suppressed by default.
	SuppressBy = "quota"
)

// SuppressConfig says what experiment suppress measures. Of the zero value everything is the default.
type SuppressConfig struct {
	Config
	Steps  int
	By     string // method of the policy that suppresses: cpuset, quota or both
	Policy string // file with a ColocationPolicy instead
}

// Suppress lets an online pod want half of the machine, again and again, beside a batch pod that uses all there is, under an
// agent that suppresses batch. What it measures is in [Suppression.Result].
func Suppress(ctx context.Context, cfg SuppressConfig) (r Result, err error) {
	if cfg.Steps == 0 {
		cfg.Steps = SuppressSteps
	}
	if cfg.By == "" {
		cfg.By = SuppressBy
	}
	policy, err := policyText(cfg.Policy, cfg.By)
	if err != nil {
		return Result{}, err
	}
	l, err := newLab(SuppressName, cfg.Config, cpusetController)
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	s := &suppress{lab: l, length: time.Duration(cfg.seconds(SuppressSeconds)) * time.Second}
	s.found = Suppression{
		When: time.Now().UTC().Truncate(time.Second), Machine: DescribeMachine(l.box.mount.Version), By: cfg.By, Length: s.length,
	}
	if cfg.Policy != "" {
		s.found.By = "the policy in " + cfg.Policy
	}
	if err := s.begin(ctx, policy); err != nil {
		return Result{}, err
	}
	if err := s.run(ctx, cfg.Steps); err != nil {
		return Result{}, err
	}
	return s.found.Result(), nil
}

// suppress is the experiment as it runs.
type suppress struct {
	*lab
	length        time.Duration // of a step
	online, batch *pod
	found         Suppression
}

// suppressPods are the online pod, which wants half of the machine, and the batch pod, which takes all.
func suppressPods() (online, batch *pod) {
	cpus := runtime.NumCPU()
	online = &pod{name: "online", qos: model.Burstable, requestMilli: 500 * int64(cpus), threads: max(cpus/2, 1), roams: true}
	batch = &pod{name: "batch", qos: model.BestEffort, batchMilli: 1000 * int64(cpus), threads: threads(), roams: true}
	return online, batch
}

// begin starts the agent and both pods. The online load is stopped before the agent sees any of it.
func (s *suppress) begin(ctx context.Context, policy string) error {
	s.online, s.batch = suppressPods()
	if err := s.create(ctx, s.online, s.batch); err != nil {
		return err
	}
	if err := s.load(ctx, s.online); err != nil {
		return err
	}
	for _, pid := range s.pids() {
		if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
			return fmt.Errorf("stopping the online load: %w", err)
		}
	}
	s.tell(Progress{Doing: "starting the agent"})
	if err := s.govern(ctx, policy, s.batch); err != nil {
		return err
	}
	return s.load(ctx, s.batch)
}

// pids are those of the online load.
func (s *suppress) pids() []int {
	var pids []int
	for _, p := range s.procs {
		if p.name == loadOf(s.online) {
			pids = append(pids, p.cmd.Process.Pid)
		}
	}
	return pids
}

// run makes the steps, in a cgroup outside of kubepods.
func (s *suppress) run(ctx context.Context, steps int) (err error) {
	dir := s.box.name + "/reader"
	if err := s.box.makeUrgent(dir); err != nil {
		return err
	}
	args := []string{"--number", fmt.Sprint(steps), "--for", s.length.String()}
	for _, file := range []string{
		"online=" + s.box.usageFile(s.kubelet.dir(s.online)), "batch=" + s.box.usageFile(s.kubelet.dir(s.batch)),
		"quota=" + s.box.file(s.kubelet.dir(s.batch), model.Quota), "cpus=" + s.box.cpusFile(s.kubelet.containerDir(s.batch)),
	} {
		args = append(args, "--file", file)
	}
	for _, pid := range s.pids() {
		args = append(args, "--pid", fmt.Sprint(pid))
	}
	first, err := s.read()
	if err != nil {
		return err
	}
	read, write := io.Pipe()
	defer func() { _ = read.Close() }()
	reader, err := s.startIn("the outside reader", dir, write, "step", args...)
	if err != nil {
		return err
	}
	s.procs = slices.DeleteFunc(s.procs, func(p *process) bool { return p == reader }) // it will end
	defer func() { err = errors.Join(err, reader.kill()) }()
	stop := context.AfterFunc(ctx, func() { _ = read.CloseWithError(context.Cause(ctx)) })
	defer stop()
	go func() { <-reader.done; _ = write.Close() }()
	if err := s.listen(read, steps); err != nil {
		return err
	}
	if err := reader.wait(ctx); err != nil {
		return err
	}
	if s.found.reader, err = s.box.usage(dir); err != nil {
		return err
	}
	last, err := s.read()
	s.found.window, s.found.loadAverage = last.since(first), loadAverage()
	return errors.Join(err, s.running())
}

// listen reads what the reader prints.
func (s *suppress) listen(from io.Reader, steps int) error {
	lines, start := bufio.NewScanner(from), time.Now()
	if lines.Scan() {
		s.found.scheduled = lines.Text()
	}
	s.tell(Progress{Doing: "making steps"})
	for lines.Scan() {
		step, err := parseStep(lines.Text())
		if err != nil {
			return err
		}
		s.found.steps = append(s.found.steps, step)
		n, elapsed := len(s.found.steps), time.Since(start)
		s.tell(Progress{
			Doing: "making steps", Now: fmt.Sprintf("step %d of %d: %.0f ms", n, steps, step.down),
			Elapsed: elapsed, Total: elapsed * time.Duration(steps) / time.Duration(n),
		})
		if err := s.running(); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("reading from the outside reader: %w", err)
	}
	return nil
}
