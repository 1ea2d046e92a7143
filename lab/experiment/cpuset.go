package experiment

import (
	"context"
	"errors"
	"fmt"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/progress"
	"github.com/waterline-io/waterline/lab/load"
	"github.com/waterline-io/waterline/lab/measure"
	"github.com/waterline-io/waterline/lab/sandbox"
)

// serverLoad is the part of one CPU that all requests take together.
const serverLoad = 0.3

// cpusets lets a server that requests one CPU answer requests, first alone, then beside a batch pod that burns all
// CPUs, then on an exclusive CPU beside it.
//
// Metrics, each for alone, none and exclusive: p50_ms, p99_ms and answers_per_second, as clients see them; batch_cpus,
// the CPUs of the batch pod; outsiders_cpus; and late_p99_ms, of the client itself. And exclusive_intruders, the
// threads of other pods that were seen on the exclusive CPU.
func cpusets(ctx context.Context, r *run) error {
	c := &cpusetRun{run: r}
	var err error
	if c.all, err = r.CPUs(r.Layout().Root); err != nil {
		return err
	}
	if c.all.Len() < 2 {
		return fmt.Errorf("it needs two CPUs, because with one there is no other CPU for the batch pod; "+
			"pods on this machine may run on CPU %s only", c.all)
	}
	if err := c.begin(ctx); err != nil {
		return err
	}
	trials, err := c.trials(ctx)
	if err != nil {
		return err
	}
	c.report(trials)
	return nil
}

// cpusetRun is experiment cpuset as it runs.
type cpusetRun struct {
	*run
	all    model.CPUSet // that pods may run on
	pod    *sandbox.Pod // of the server
	server load.Server
	rate   float64        // requests a second
	others []*sandbox.Pod // pods without exclusive CPUs
}

// cpusetTrial is what was measured of the server in one mode.
type cpusetTrial struct {
	trial
	intruders int // threads of other pods that were seen on the server's CPUs, in all seconds together
}

// begin starts the agent and the server.
func (c *cpusetRun) begin(ctx context.Context) error {
	self := sandbox.AgentPod()
	if err := c.startAgent(self); err != nil {
		return err
	}
	c.others = append(c.others, self)
	if err := c.Await(ctx, self); err != nil {
		return err
	}
	c.pod = &sandbox.Pod{Name: "server", QoS: model.Guaranteed, RequestMilli: 1000, CPUs: model.CPUNone}
	if err := c.Create(c.pod); err != nil {
		return err
	}
	var err error
	if c.server, err = load.StartServer(ctx, c.Sandbox, c.pod); err != nil {
		return err
	}
	c.rate = serverLoad / max(c.server.Cost, load.RequestCost).Seconds()
	return nil
}

// trials makes the trials.
func (c *cpusetRun) trials(ctx context.Context) ([]cpusetTrial, error) {
	alone, err := c.trial(ctx, "alone")
	if err != nil {
		return nil, err
	}
	// It requests nearly all that is left of the node, as on nodes that are full by requests: then the kernel gives the
	// batch pod as much weight as it will get. With a request of 100m the server was seen to be nearly undisturbed on
	// two CPUs.
	rest := 1000*int64(c.all.Len()) - c.pod.RequestMilli - 200
	pods := c.withHog(&sandbox.Pod{Name: "batch", QoS: model.Burstable, RequestMilli: rest, Threads: load.Threads()})
	for _, p := range pods {
		p.Unbound = true
	}
	if err := c.Create(pods...); err != nil {
		return nil, err
	}
	if err := c.Await(ctx, pods...); err != nil {
		return nil, err
	}
	if err := load.BurnAll(ctx, c.Sandbox, pods...); err != nil {
		return nil, err
	}
	c.others = append(c.others, pods...)
	none, err := c.trial(ctx, "none")
	if err != nil {
		return nil, err
	}
	if err := c.bind(ctx); err != nil {
		return nil, err
	}
	exclusive, err := c.trial(ctx, "exclusive")
	return []cpusetTrial{alone, none, exclusive}, err
}

// bind changes the annotation of the running server to exclusive, and waits until the server has its CPU alone.
func (c *cpusetRun) bind(ctx context.Context) error {
	c.Report(progress.Step{Doing: "changing the annotation to exclusive"})
	c.pod.CPUs = model.CPUExclusive
	if err := c.Announce(c.pod); err != nil {
		return err
	}
	err := c.Poll(ctx, "for the server to have a CPU alone", func() (bool, error) {
		server, err := c.places(c.pod)
		if err != nil || measure.Allowed(server).Len() != 1 {
			return false, err
		}
		others, err := c.intruders()
		return others == 0, err
	})
	if err != nil {
		return c.WithAgentLog(err)
	}
	return nil
}

func (c *cpusetRun) places(p *sandbox.Pod) ([]measure.Place, error) {
	return measure.Places(c.ProcsFile(c.ContainerGroup(p)))
}

// intruders counts the threads of other pods that may run on the server's CPUs, or run there.
func (c *cpusetRun) intruders() (int, error) {
	server, err := c.places(c.pod)
	if err != nil {
		return 0, err
	}
	own, count := measure.Allowed(server), 0
	for _, pod := range c.others {
		places, err := c.places(pod)
		if err != nil {
			return 0, err
		}
		for _, p := range places {
			// A thread that has slept since the change last ran where it then could.
			if p.Allowed.Overlaps(own) || p.Running && p.Last.Overlaps(own) {
				count++
			}
		}
	}
	return count, nil
}

// trial measures the server in its present mode.
func (c *cpusetRun) trial(ctx context.Context, mode string) (t cpusetTrial, err error) {
	t.trial = trial{mode: mode, rate: c.rate}
	cpu, err := c.clientCPU()
	if err != nil {
		return t, err
	}
	var counting error
	requests := load.Requests{Line: fmt.Sprint(c.server.Steps), CPU: cpu}
	err = t.run(ctx, c.Sandbox, requests, c.cfg.Seconds, func() error { return nil }, func() error {
		return counting
	}, func(w measure.Window) string {
		n, err := c.intruders()
		t.intruders, counting = t.intruders+n, errors.Join(counting, err)
		return fmt.Sprintf("the others use %.2f CPUs", w.CPUs()-w.CPUsOf(c.pod.Name))
	})
	return t, err
}

// clientCPU returns the CPU on which the client runs: the last that is not the server's own, in every mode the same if
// possible. On a node clients are on other machines and take nothing from exclusive CPUs. Left to the kernel, the
// client was drawn to the server's CPU and interrupted it after nearly every answer.
func (c *cpusetRun) clientCPU() (int, error) {
	places, err := c.places(c.pod)
	if err != nil {
		return 0, err
	}
	from := c.all.Minus(measure.Allowed(places))
	if from.Empty() {
		from = c.all
	}
	last := 0
	for cpu := range from.All() {
		last = cpu
	}
	return last, nil
}
