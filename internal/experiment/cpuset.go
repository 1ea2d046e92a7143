package experiment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

const (
	serverLoad = 0.3         // of one CPU, which all requests take together
	warm       = time.Second // of each trial, which does not count
)

// CPUSets lets a server that requests one CPU answer requests, first alone, then beside a batch pod that burns all CPUs,
// while the annotation of the running server goes from none to share to exclusive.
//
// Metrics, each for alone, none, share and exclusive: what clients saw, p50_ms, p99_ms, p999_ms and answers_per_second; of
// the server context_switches_per_second, involuntary_context_switches_per_second, migrations_per_second and
// cpu_ms_per_request; batch_cpus, what the batch pod had; and late_p99_ms, what the client itself was late. And
// switch_max_ms, the longest that a changed annotation took to be true of every process.
func CPUSets(ctx context.Context, cfg Config) (r Result, err error) {
	l, err := newLab("cpuset", cfg, cpusetController)
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	r = begin("cpuset", l)
	c := &cpusets{lab: l, length: time.Duration(cfg.seconds(10)) * time.Second}
	if c.all, err = l.box.cpus(l.kubelet.layout.Root); err != nil {
		return r, err
	}
	if c.all.Len() < 2 {
		return r, fmt.Errorf("it needs two CPUs: of one, nobody can have it alone; pods on this machine may run on CPU %s only", c.all)
	}
	if err := c.begin(ctx); err != nil {
		return r, err
	}
	trials, err := c.run(ctx)
	if err != nil {
		return r, err
	}
	report(&r, trials)
	return r, nil
}

// cpusets is one run of the experiment.
type cpusets struct {
	*lab
	length time.Duration // of measuring in each mode
	all    model.CPUSet  // that pods may run on
	server *pod
	runs   server  // in it
	rate   float64 // of requests, a second
	others []*pod  // that have no CPUs of their own
}

// begin starts the agent and the server.
func (c *cpusets) begin(ctx context.Context) error {
	c.tell(Progress{Doing: "starting the agent"})
	// As in a cluster, the agent knows its pod. Nobody is annotated with a weight, so the QoS classes stay as the kubelet
	// makes them.
	self := agentPod()
	self.shares = 0
	if err := c.startAgent(ctx, self, "--pod-uid", self.uid()); err != nil {
		return err
	}
	c.others = append(c.others, self)
	weighted := *self
	weighted.shares = agentShares
	if err := c.await(ctx, &weighted); err != nil {
		return err
	}
	c.server = &pod{name: "server", qos: model.Guaranteed, requestMilli: 1000, cpus: model.CPUNone}
	if err := c.create(ctx, c.server); err != nil {
		return err
	}
	var err error
	if c.runs, err = c.startServer(ctx, c.server); err != nil {
		return err
	}
	c.rate = serverLoad / max(c.runs.cost, request).Seconds()
	return nil
}

// run makes the trials.
func (c *cpusets) run(ctx context.Context) ([]trial, error) {
	alone, err := c.trial(ctx, "alone")
	if err != nil {
		return nil, err
	}
	// It requests what is left of the node, save a little, as on nodes that are full by requests: then the kernel gives the
	// batch pod as much weight as it will. With a request of 100m the server was seen to be nearly undisturbed on two CPUs.
	rest := 1000*int64(c.all.Len()) - c.server.requestMilli - 200
	pods := []*pod{{name: "batch", qos: model.Burstable, requestMilli: rest, threads: threads(), roams: true}}
	if c.cfg.Hog {
		hog := loadPod("hog", hogShares)
		hog.roams = true
		pods = append(pods, hog)
	}
	if err := c.create(ctx, pods...); err != nil {
		return nil, err
	}
	if err := c.await(ctx, pods...); err != nil {
		return nil, err
	}
	if err := c.load(ctx, pods...); err != nil {
		return nil, err
	}
	c.others = append(c.others, pods...)
	trials := []trial{alone}
	for _, mode := range []model.CPUMode{model.CPUNone, model.CPUShare, model.CPUExclusive} {
		var noticed, took time.Duration
		if mode != c.server.cpus {
			if noticed, took, err = c.change(ctx, mode); err != nil {
				return nil, err
			}
		}
		t, err := c.trial(ctx, string(mode))
		if err != nil {
			return nil, err
		}
		t.noticed, t.took = noticed, took
		trials = append(trials, t)
	}
	return trials, nil
}

// change annotates the running server anew and waits until every process is where it belongs. It returns how long the agent
// needed to read the annotation, and how long it took from then.
func (c *cpusets) change(ctx context.Context, mode model.CPUMode) (noticed, took time.Duration, err error) {
	c.tell(Progress{Doing: fmt.Sprintf("changing the annotation to %s", mode)})
	read, stop, err := c.kubelet.heard(c.server)
	if err != nil {
		return 0, 0, err
	}
	defer stop()
	c.server.cpus = mode
	start := time.Now()
	if err := c.kubelet.announce(c.server); err != nil {
		return 0, 0, err
	}
	wrong := ""
	err = c.poll(ctx, fmt.Sprintf("for every process to be where mode %s wants it", mode), func() (bool, error) {
		var err error
		wrong, err = c.misplaced()
		return wrong == "", err
	})
	done := time.Now()
	if err != nil {
		return 0, 0, fmt.Errorf("%w: %s; the agent's log: %s", err, wrong, c.log())
	}
	select {
	case at := <-read:
		return at.Sub(start), max(done.Sub(at), 0), nil
	case <-time.After(patience):
		return 0, 0, errors.New("the agent was not seen to read the annotation")
	}
}

// misplaced says which thread may not run where the server's mode wants it; "": none.
func (c *cpusets) misplaced() (string, error) {
	mine, err := c.box.places(c.kubelet.containerDir(c.server))
	if err != nil {
		return "", err
	}
	own, rest := union(mine), c.all
	switch c.server.cpus {
	case model.CPUShare, model.CPUExclusive:
		if own.allowed.Len() != 1 {
			return fmt.Sprintf("the server may run on %s, which is not one CPU", own.allowed), nil
		}
		if c.server.cpus == model.CPUExclusive {
			rest = c.all.Minus(own.allowed)
		}
	default:
		if own.allowed != c.all {
			return fmt.Sprintf("the server may run on %s, not on %s", own.allowed, c.all), nil
		}
	}
	for _, pod := range c.others {
		places, err := c.box.places(c.kubelet.containerDir(pod))
		if err != nil {
			return "", err
		}
		for _, p := range places {
			if p.allowed != rest {
				return fmt.Sprintf("a thread of pod %s may run on %s, not on %s", pod.name, p.allowed, rest), nil
			}
		}
	}
	return "", nil
}

// intruders counts the threads of other pods that may run on the server's CPUs, or last ran there.
func (c *cpusets) intruders() (int, error) {
	mine, err := c.box.places(c.kubelet.containerDir(c.server))
	if err != nil {
		return 0, err
	}
	own, count := union(mine).allowed, 0
	for _, pod := range c.others {
		places, err := c.box.places(c.kubelet.containerDir(pod))
		if err != nil {
			return 0, err
		}
		for _, p := range places {
			// A thread that has slept since the change last ran where it then could.
			if p.allowed.Overlaps(own) || p.running && p.last.Overlaps(own) {
				count++
			}
		}
	}
	return count, nil
}

// trial measures the server in the mode in which it is.
func (c *cpusets) trial(ctx context.Context, mode string) (t trial, err error) {
	t.mode, t.rate = mode, c.rate
	cpu, err := c.elsewhere()
	if err != nil {
		return t, err
	}
	var out strings.Builder
	client, err := c.startHere("the client", &out, "ask", "--dir", c.dir, "--line", fmt.Sprint(c.runs.steps),
		"--rate", fmt.Sprint(c.rate), "--for", (warm + c.length).String(), "--cpu", fmt.Sprint(cpu))
	if err != nil {
		return t, err
	}
	c.procs = slices.DeleteFunc(c.procs, func(p *process) bool { return p == client }) // it will end
	defer func() { err = errors.Join(err, client.kill()) }()
	if err := Sleep(ctx, warm); err != nil {
		return t, err
	}
	before, err := readSwitches(c.runs.cmd.Process.Pid)
	if err != nil {
		return t, err
	}
	var looking error
	t.window, err = c.measure(ctx, "mode "+mode, int(c.length.Seconds()), func(w window) string {
		n, err := c.intruders()
		t.intruders, looking = t.intruders+n, errors.Join(looking, err)
		return fmt.Sprintf("the others use %.2f CPUs", w.cpus()-w.of(c.server.name))
	})
	if err := errors.Join(err, looking); err != nil {
		return t, err
	}
	after, err := readSwitches(c.runs.cmd.Process.Pid)
	if err != nil {
		return t, err
	}
	t.switches = after.since(before, t.window.length)
	if err := client.wait(ctx); err != nil {
		return t, err
	}
	_, all, err := parseAsked(out.String())
	if err != nil {
		return t, err
	}
	return t, t.count(all, c.length)
}

// elsewhere returns the CPU on which the client runs: the last that is not the server's own, in every mode the same if it
// can be. On a node clients are on other machines and take nothing from CPUs that somebody has alone. Left to the kernel, the
// client was drawn to the server's CPU and interrupted it after nearly every answer.
func (c *cpusets) elsewhere() (int, error) {
	places, err := c.box.places(c.kubelet.containerDir(c.server))
	if err != nil {
		return 0, err
	}
	from := c.all.Minus(union(places).allowed)
	if from.Empty() {
		from = c.all
	}
	last := 0
	for cpu := range from.All() {
		last = cpu
	}
	return last, nil
}
