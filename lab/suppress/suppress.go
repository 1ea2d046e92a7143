// Package suppress measures how soon an agent suppresses batch when online load rises, and how soon batch has its CPU
// back.
package suppress

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/progress"
	"github.com/waterline-io/waterline/internal/report"
	"github.com/waterline-io/waterline/lab/agentrun"
	"github.com/waterline-io/waterline/lab/load"
	"github.com/waterline-io/waterline/lab/measure"
	"github.com/waterline-io/waterline/lab/sandbox"
)

// The experiment.
const (
	Name  = "suppress"
	About = "Online load rises at once beside batch that has the whole machine: how long until batch is limited to " +
		"the rest, and " +
		"until it has its CPU back."
	DefaultSteps   = 100
	DefaultSeconds = 6 // of each step
	DefaultBy      = model.SuppressByArithmetic
)

// Config says what the experiment measures. The zero value is the default.
type Config struct {
	sandbox.Config
	Seconds int                  // of each step
	Steps   int                  // how many
	By      model.SuppressMethod // that the policy suppresses by
	Policy  string               // file with a ColocationPolicy instead
}

// Run lets an online pod want half of the machine, again and again, beside a batch pod that uses the whole machine,
// under an agent that suppresses batch. The metrics are those of [outcome.report].
func Run(ctx context.Context, cfg Config) (r report.Result, err error) {
	if cfg.Seconds == 0 {
		cfg.Seconds = DefaultSeconds
	}
	if cfg.Steps == 0 {
		cfg.Steps = DefaultSteps
	}
	if cfg.By == "" {
		cfg.By = DefaultBy
	}
	policy, err := agentrun.Policy(cfg.Policy, cfg.By)
	if err != nil {
		return r, err
	}
	s, err := sandbox.Open(Name, cfg.Config, sandbox.Cpuset)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	r = report.Begin(Name, About)
	r.Machine = measure.DescribeMachine(s.Version())
	e := &run{Sandbox: s, found: outcome{by: string(cfg.By), length: time.Duration(cfg.Seconds) * time.Second}}
	if cfg.Policy != "" {
		e.found.by = "the policy in " + cfg.Policy
	}
	if err := e.begin(ctx, policy); err != nil {
		return r, err
	}
	if err := e.measure(ctx, cfg.Steps); err != nil {
		return r, err
	}
	e.found.report(&r)
	return r, nil
}

// run is the experiment as it runs.
type run struct {
	*sandbox.Sandbox
	online, batch *sandbox.Pod
	loops         []*sandbox.Process // online load
	found         outcome
}

// pods returns the online pod, which wants half of the machine, and the batch pod, which takes all of it.
func pods() (online, batch *sandbox.Pod) {
	cpus := runtime.NumCPU()
	online = &sandbox.Pod{
		Name: "online", QoS: model.Burstable, RequestMilli: 500 * int64(cpus), Threads: max(cpus/2, 1), Unbound: true,
	}
	batch = &sandbox.Pod{
		Name: "batch", QoS: model.BestEffort, BatchMilli: 1000 * int64(cpus), Threads: load.Threads(), Unbound: true,
	}
	return online, batch
}

// begin starts the agent and both pods. The online load is stopped before the agent sees any of it.
func (r *run) begin(ctx context.Context, policy string) (err error) {
	r.online, r.batch = pods()
	if err := r.Create(r.online, r.batch); err != nil {
		return err
	}
	r.Report(progress.Step{Doing: "starting the load"})
	if r.loops, err = load.Burn(ctx, r.Sandbox, r.online); err != nil {
		return err
	}
	if err := load.Settle(ctx); err != nil {
		return err
	}
	for _, p := range r.loops {
		if err := unix.Kill(p.PID(), unix.SIGSTOP); err != nil {
			return fmt.Errorf("stopping the online load: %w", err)
		}
	}
	r.Report(progress.Step{Doing: "starting the agent"})
	if err := agentrun.Start(r.Sandbox, sandbox.AgentPod(), policy); err != nil {
		return err
	}
	if err := agentrun.AwaitBatch(ctx, r.Sandbox, r.batch); err != nil {
		return err
	}
	return load.BurnAll(ctx, r.Sandbox, r.batch)
}

// measure makes the steps, by a reader in a cgroup outside of kubepods.
func (r *run) measure(ctx context.Context, steps int) (err error) {
	dir, err := r.OutsideGroup("reader")
	if err != nil {
		return err
	}
	meter := measure.Meter{Source: r.Sandbox}
	first, err := meter.Read()
	if err != nil {
		return err
	}
	read, write := io.Pipe()
	defer func() { _ = read.Close() }()
	input := stepping{
		Version: r.Version(), Online: r.UsageFile(r.PodGroup(r.online)), Batch: r.UsageFile(r.PodGroup(r.batch)),
		Quota: r.KnobFile(r.PodGroup(r.batch), model.Quota), CPUs: r.CPUsFile(r.ContainerGroup(r.batch)),
		Steps: steps, Length: r.found.length,
	}
	for _, p := range r.loops {
		input.PIDs = append(input.PIDs, p.PID())
	}
	reader, err := r.Start(sandbox.Command{
		Name: "the outside reader", Group: dir, Ends: true, Stdout: write, Helper: helperName, Input: input,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, reader.Kill()) }()
	stop := context.AfterFunc(ctx, func() { _ = write.CloseWithError(context.Cause(ctx)) })
	defer stop()
	go func() { <-reader.Done(); _ = write.Close() }()
	if err := r.readSteps(read, steps); err != nil {
		return err
	}
	if err := reader.Wait(ctx); err != nil {
		return err
	}
	if r.found.reader, err = r.Usage(dir); err != nil {
		return err
	}
	last, err := meter.Read()
	r.found.window, r.found.loadAverage = last.Since(first), measure.LoadAverage()
	return errors.Join(err, r.Running())
}

// readSteps reads what the reader prints.
func (r *run) readSteps(from io.Reader, steps int) error {
	lines, start := bufio.NewScanner(from), time.Now()
	if lines.Scan() {
		r.found.scheduled = lines.Text()
	}
	const doing = "making steps"
	r.Report(progress.Step{Doing: doing})
	for lines.Scan() {
		step, err := parseStep(lines.Text())
		if err != nil {
			return err
		}
		r.found.steps = append(r.found.steps, step)
		n, elapsed := len(r.found.steps), time.Since(start)
		r.Report(progress.Step{
			Doing: doing, Now: fmt.Sprintf("step %d of %d: %.0f ms", n, steps, step.down),
			Elapsed: elapsed, Total: elapsed * time.Duration(steps) / time.Duration(n),
		})
		if err := r.Running(); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("reading from the outside reader: %w", err)
	}
	return nil
}
