package interference

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/host"
	"github.com/waterline-io/waterline/internal/progress"
	"github.com/waterline-io/waterline/lab/agentrun"
	"github.com/waterline-io/waterline/lab/load"
	"github.com/waterline-io/waterline/lab/measure"
	"github.com/waterline-io/waterline/lab/sandbox"
)

// policy is a policy under which the agent throttles batch for this one reason.
const policy = `apiVersion: waterline.io/v1alpha1
kind: ColocationPolicy
metadata: {name: interference}
spec:
  mode: Enforce
  weight: {max: 262144}
  privileges: [{namespaceSelector: {}, allow: [UnlimitedQuota]}]
  cpu: {suppression: None}
  protect: {burst: false, interference: true}
`

// The weights. The server requests next to nothing and all of batch weighs as much as it can, or the server would
// hardly wait for a CPU that it shares: while most of batch runs elsewhere, the guilty pod has a small part of that
// weight.
const (
	serverMilli = 10
	batchShares = model.MaxShares
	agentMilli  = 1000
)

// The requests to the server.
const (
	requestCost   = 15 * time.Millisecond // of CPU
	requestRate   = 2                     // a second
	generatorLead = 3 * time.Second       // requests before that do not count
)

// trial is one run as it goes on.
type trial struct {
	*sandbox.Sandbox
	name       string
	found      run
	online     *sandbox.Pod
	server     load.Server
	neighbours []*neighbour
	began      time.Duration // the run, on the clock of the agent's measurements
	last       look
	meter      *host.Meter // as in the agent
	waits      *host.Waits // as in the agent
	sampled    model.PodWait
	seenAt     time.Duration
}

// begin starts the agent, the server and its neighbours. The server stays on one CPU.
func (t *trial) begin(ctx context.Context, cpu int) error {
	t.Report(progress.Step{Doing: t.name + ", starting"})
	t.online = &sandbox.Pod{Name: "online", QoS: model.Burstable, RequestMilli: serverMilli}
	t.neighbours = neighbours(&t.found)
	var batch []*sandbox.Pod
	for _, n := range t.neighbours {
		if n.pod.BatchMilli > 0 {
			batch = append(batch, n.pod)
		}
	}
	if err := t.Create(append(batch, t.online)...); err != nil {
		return err
	}
	if err := t.SetShares(t.Layout().Class(model.BestEffort), batchShares); err != nil {
		return err
	}
	agent := sandbox.AgentPod()
	agent.QoS, agent.RequestMilli = model.Guaranteed, agentMilli // apart from the server's class, whose weight counts here
	if err := agentrun.Start(t.Sandbox, agent, policy); err != nil {
		return err
	}
	if err := agentrun.AwaitBatch(ctx, t.Sandbox, batch...); err != nil {
		return err
	}
	var err error
	if t.server, err = load.StartServer(ctx, t.Sandbox, t.online); err != nil {
		return err
	}
	var only unix.CPUSet
	only.Set(cpu)
	if err := unix.SchedSetaffinity(t.server.PID(), &only); err != nil {
		return fmt.Errorf("keeping the server on CPU %d: %w", cpu, err)
	}
	for _, n := range t.neighbours {
		if err := t.startNeighbour(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

// startNeighbour starts the load of a neighbour and stops it.
func (t *trial) startNeighbour(ctx context.Context, n *neighbour) (err error) {
	var group string
	if n.pod.BatchMilli > 0 {
		group = t.ContainerGroup(n.pod)
		t.AddLoad(n.pod)
	} else if group, err = t.OutsideGroup(outsiderName); err != nil {
		return err
	}
	if n.load, err = load.StartLoop(t.Sandbox, load.BurnName(n.pod), group, n.cpu); err != nil {
		return err
	}
	// A process of many threads that is about to exec forgets a stop signal (zap_other_threads, 6.18).
	return t.Poll(ctx, "for "+n.load.Name(), func() (bool, error) {
		pid := n.load.PID()
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || !bytes.Contains(stat, []byte(" (sh) ")) {
			return false, err
		}
		if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
			return false, fmt.Errorf("stopping %s: %w", n.load.Name(), err)
		}
		return bytes.Contains(stat, []byte(" (sh) T ")), nil
	})
}

// measure sends requests to the server, directs its neighbours, and reads what the agent did.
func (t *trial) measure(ctx context.Context) (err error) {
	group, err := t.OutsideGroup("generator")
	if err != nil {
		return err
	}
	steps := int(float64(max(t.server.Steps, 1)) * float64(requestCost) / float64(load.RequestCost))
	generator, err := load.StartGenerator(t.Sandbox, group, load.Requests{
		Dir: t.Dir(), CPU: -1, Prioritize: true, Line: fmt.Sprint(steps), Rates: load.Rates{requestRate},
		Lead: generatorLead, Length: t.found.length(), Seed: rand.Uint64(),
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, generator.Kill()) }()
	if err := sandbox.Sleep(ctx, generatorLead); err != nil {
		return err
	}
	if err := t.observe(ctx, group); err != nil {
		return t.WithAgentLog(err)
	}
	outcome, err := generator.Outcome(ctx)
	if err != nil {
		return err
	}
	t.found.count(outcome.Requests)
	return t.readJournal()
}

// observe directs the neighbours, and reads once a second how long the server waited.
func (t *trial) observe(ctx context.Context, generator string) (err error) {
	if t.began, err = sinceBoot(); err != nil {
		return err
	}
	t.meter = host.NewMeter(t.Mount(), t.Layout(), host.DefaultProc)
	defer t.meter.Close()
	t.waits = host.NewWaits(t.Mount(), t.Layout(), host.DefaultProc)
	defer t.waits.Close()
	if t.last, err = t.look(); err != nil {
		return err
	}
	directing, end := context.WithCancel(ctx)
	directed := make(chan error, 1)
	go func() { directed <- direct(directing, t.neighbours) }()
	defer func() {
		end()
		err = errors.Join(err, <-directed)
	}()
	var failed error
	meter := measure.Meter{Source: t.Sandbox, Generator: generator}
	t.found.window, err = meter.Seconds(ctx, t.name, t.found.total(), func(measure.Window) string {
		var now second
		if failed == nil {
			now, failed = t.second()
			t.found.seconds = append(t.found.seconds, now)
		}
		return fmt.Sprintf("the server waits for %.0f %% of the time", now.waits)
	})
	t.found.loadAverage = measure.LoadAverage()
	return errors.Join(err, failed)
}

// look is what the kernel had counted of the server at one moment.
type look struct {
	at     time.Duration
	waited time.Duration // for a CPU
}

func (t *trial) look() (l look, err error) {
	server, err := measure.ReadSchedstat(t.server.PID())
	if err != nil {
		return l, err
	}
	l.waited = server.Waited
	l.at, err = sinceBoot()
	return l, err
}

// second returns for how much of the last second the server waited, and what the agent sees of it.
func (t *trial) second() (is second, err error) {
	now, err := t.look()
	if err != nil {
		return is, err
	}
	length := max(now.at-t.last.at, 1)
	is.waits, is.seen = 100*float64(now.waited-t.last.waited)/float64(length), unknown
	t.last = now
	uid := t.online.UID()
	measured, err := t.meter.Measure(map[string]model.PodGroup{uid: {Dir: t.PodGroup(t.online)}},
		[]model.Detail{{UID: uid, Seconds: true}})
	if err != nil {
		return is, fmt.Errorf("measuring as the agent does: %w", err)
	}
	if err := t.waits.Sample([]model.WaitMark{{PodWait: model.PodWait{UID: uid}}}); err != nil {
		return is, fmt.Errorf("sampling tasks as the agent does: %w", err)
	}
	if permille, at := t.delay(t.waits.Append(nil)[0]); at != t.seenAt && measured.Pod(uid).CPU.Throttled == 0 {
		t.seenAt, is.seen = at, float64(permille)/10
	}
	return is, nil
}

// delay returns how long the server waited since the last sample beyond what is tolerated without a baseline, in
// thousandths of the time. If there is no new value, the time is that of the last one.
func (t *trial) delay(now model.PodWait) (permille int64, at time.Duration) {
	last := t.sampled
	t.sampled = now
	if span, ok := now.Since(&last); ok && last.At != 0 {
		return max(span.Lacks(span.Excess(model.Tolerated{Permille: 100})), 0), now.At
	}
	return 0, t.seenAt
}

// readJournal reads in the agent's journal which pods were named and throttled.
func (t *trial) readJournal() error {
	names := map[string]string{t.online.UID(): t.online.Name}
	for _, n := range t.neighbours {
		names[n.pod.UID()] = n.pod.Name
	}
	var h history
	err := agentrun.EachRound(t.AgentRunDir(), h.add)
	for _, e := range h.events {
		e.at -= t.began
		if name, found := names[e.pod]; found {
			e.pod = name
		}
		t.found.events = append(t.found.events, e)
	}
	return err
}

// sinceBoot returns the time on the clock of the agent's measurements.
func sinceBoot() (time.Duration, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0, fmt.Errorf("reading the time since boot: %w", err)
	}
	return time.Duration(ts.Nano()), nil
}
