package experiment

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/host"
)

// Experiment culprit takes half an hour, and has options of its own.
const (
	CulpritName  = "culprit"
	CulpritAbout = "A server beside four batch pods, one of which begins to keep it from its CPU: who is named, how soon, and what throttling that pod is worth."
	// CulpritSeconds is for how long a pod is guilty by default, CulpritRepeats how often one is, and CulpritNobody how often none is.
	CulpritSeconds = 100
	CulpritRepeats = 5
	CulpritNobody  = 2
)

// culpritPolicy is a policy under which batch is throttled for the one reason that is measured.
const culpritPolicy = `apiVersion: waterline.io/v1alpha1
kind: ColocationPolicy
metadata: {name: culprit}
spec:
  mode: Enforce
  cpu: {suppression: None}
  protect: {burst: false, interference: true}
`

// Who weighs what. The server requests next to nothing and all of batch weighs as much as it can, or it would hardly wait for a CPU
// that it shares: where most of batch runs elsewhere, the guilty pod has a small part of that weight.
const (
	culpritServer = 10 // milli-cores
	culpritBatch  = model.MaxShares
	culpritAgent  = 1000 // milli-cores
)

// What is asked of the server.
const (
	culpritRequest = 15 * time.Millisecond // of CPU, that a request takes
	culpritRate    = 2                     // of them, a second
)

// CulpritConfig says what experiment culprit measures. Its Seconds are those for which a pod is guilty; before that it measures for a
// third longer, because nobody is named before two minutes are known, and after it for two thirds of that.
type CulpritConfig struct {
	Config
	Repeats int // runs in which a pod is guilty; 0: CulpritRepeats
	Nobody  int // runs in which none is
}

// Culprit runs a server and four batch pods on two CPUs under an agent that looks for whom online pods wait for. In most runs one of
// the four, another each time, begins to run where the server does; in some it is a process outside of all pods. They come in random
// order. What it measures is in [CulpritFound.Result].
func Culprit(ctx context.Context, cfg CulpritConfig) (Result, error) {
	if cfg.Repeats == 0 {
		cfg.Repeats = CulpritRepeats
	}
	found := CulpritFound{When: time.Now().UTC().Truncate(time.Second), Seconds: cfg.seconds(CulpritSeconds)}
	for i, guilty := range cfg.order() {
		run, version, err := cfg.run(ctx, fmt.Sprintf("run %d of %d", i+1, cfg.Repeats+cfg.Nobody), guilty)
		if err != nil {
			return Result{}, err
		}
		found.Machine = DescribeMachine(version)
		found.runs = append(found.runs, run)
	}
	return found.Result(), nil
}

// order returns who is guilty in each run, by number; below 0: nobody.
func (c *CulpritConfig) order() []int {
	first := rand.IntN(culpritPods)
	var all []int
	for i := range c.Repeats {
		all = append(all, (first+i)%culpritPods)
	}
	for range c.Nobody {
		all = append(all, -1)
	}
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// run measures one run, in a sandbox of its own.
func (c *CulpritConfig) run(ctx context.Context, name string, guilty int) (run culpritRun, v cgroup.Version, err error) {
	cpus, err := allowedCPUs()
	if err != nil {
		return run, v, err
	}
	if len(cpus) < 2 {
		return run, v, fmt.Errorf("%w: there is one CPU, and whoever is innocent needs another than the server's", ErrUnusable)
	}
	l, err := newLab(CulpritName, c.Config)
	if err != nil {
		return run, v, err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	s := &suspicion{lab: l, name: name, run: newCulpritRun(guilty, c.seconds(CulpritSeconds))}
	if err := s.begin(ctx, cpus[0]); err != nil {
		return run, v, err
	}
	err = s.measure(ctx)
	return s.run, l.box.mount.Version, err
}

// suspicion is one run of experiment interference.
type suspicion struct {
	*lab
	name       string
	run        culpritRun
	online     *pod
	server     server
	neighbours []*neighbour
	began      time.Duration // the run, on the clock of the agent's measurements
	last       culpritLook
	meter      *host.Meter // that the agent measures with, too
	seen       time.Duration
}

// begin starts the agent, the server and everybody beside it. The server stays on one CPU.
func (s *suspicion) begin(ctx context.Context, cpu int) error {
	s.tell(Progress{Doing: s.name + ", starting"})
	s.online = &pod{name: "online", qos: model.Burstable, requestMilli: culpritServer}
	s.neighbours = neighbours(&s.run)
	var batch []*pod
	for _, n := range s.neighbours {
		if n.pod.batchMilli > 0 {
			batch = append(batch, n.pod)
		}
	}
	if err := s.create(ctx, append(batch, s.online)...); err != nil {
		return err
	}
	if err := s.kubelet.write(s.kubelet.layout.Class(model.BestEffort), culpritBatch); err != nil {
		return err
	}
	agent := agentPod()
	agent.qos, agent.requestMilli = model.Guaranteed, culpritAgent // apart from the server's class, whose weight counts here
	if err := s.startGoverned(ctx, agent, culpritPolicy); err != nil {
		return err
	}
	s.pods = append(s.pods, agent)
	if err := s.awaitBatch(ctx, batch...); err != nil {
		return err
	}
	var err error
	if s.server, err = s.startServer(ctx, s.online); err != nil {
		return err
	}
	var only unix.CPUSet
	only.Set(cpu)
	if err := unix.SchedSetaffinity(s.server.cmd.Process.Pid, &only); err != nil {
		return fmt.Errorf("keeping the server on CPU %d: %w", cpu, err)
	}
	for _, n := range s.neighbours {
		if err := s.startNeighbour(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

// startNeighbour starts the load of a neighbour, which stands still at first.
func (s *suspicion) startNeighbour(ctx context.Context, n *neighbour) error {
	dir := s.box.name + "/" + outsiderName
	if n.pod.batchMilli > 0 {
		dir = s.kubelet.containerDir(n.pod)
		s.pods = append(s.pods, n.pod)
	} else if err := s.box.makeUrgent(dir); err != nil {
		return err
	}
	var err error
	if n.load, err = s.start(loadOf(n.pod), dir, "burn", "--number", fmt.Sprint(n.cpu)); err != nil {
		return err
	}
	// A process of many threads that is about to become another program forgets that it was to stop (zap_other_threads, 6.18).
	return s.poll(ctx, "for "+n.load.name, func() (bool, error) {
		pid := n.load.cmd.Process.Pid
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || !bytes.Contains(stat, []byte(" (sh) ")) {
			return false, err
		}
		if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
			return false, fmt.Errorf("stopping %s: %w", n.load.name, err)
		}
		return bytes.Contains(stat, []byte(" (sh) T ")), nil
	})
}

// measure asks the server and lets everybody run as they shall, and finds out what the agent made of it.
func (s *suspicion) measure(ctx context.Context) (err error) {
	var out strings.Builder
	steps := int(float64(max(s.server.steps, 1)) * float64(culpritRequest) / float64(request))
	generator, err := s.startGenerator(&out, "--dir", s.dir, "--line", fmt.Sprint(steps), "--rate", fmt.Sprint(culpritRate),
		"--lead", settled.String(), "--for", s.run.length().String(), "--seed", fmt.Sprint(rand.Uint32()))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, generator.kill()) }()
	if err := Sleep(ctx, settled); err != nil {
		return err
	}
	if err := s.observe(ctx); err != nil {
		return fmt.Errorf("%w; the agent's log: %s", err, s.log())
	}
	if err := generator.wait(ctx); err != nil {
		return err
	}
	_, all, err := parseAsked(out.String())
	if err != nil {
		return err
	}
	s.run.ask(all)
	return s.accused()
}

// observe lets everybody run, and looks once a second how long the server waited.
func (s *suspicion) observe(ctx context.Context) (err error) {
	if s.began, err = sinceBoot(); err != nil {
		return err
	}
	s.meter = host.NewMeter(s.box.mount, s.kubelet.layout, host.DefaultProc)
	defer s.meter.Close()
	if s.last, err = s.look(); err != nil {
		return err
	}
	directing, end := context.WithCancel(ctx)
	directed := make(chan error, 1)
	go func() { directed <- direct(directing, s.neighbours) }()
	defer func() {
		end()
		err = errors.Join(err, <-directed)
	}()
	var failed error
	s.run.window, err = s.lab.measure(ctx, s.name, s.run.total(), func(window) string {
		var second culpritSecond
		if failed == nil {
			second, failed = s.second()
			s.run.all = append(s.run.all, second)
		}
		return fmt.Sprintf("the server waits for %.0f %% of the time", second.waits)
	})
	s.run.loadAverage = loadAverage()
	return errors.Join(err, failed)
}

// culpritLook is what the kernel had counted of the server at one moment.
type culpritLook struct {
	at     time.Duration
	waited time.Duration // that its process wanted a CPU and had none
}

func (s *suspicion) look() (c culpritLook, err error) {
	server, err := readSchedstat(s.server.cmd.Process.Pid)
	if err != nil {
		return c, err
	}
	c.waited = server.waited
	c.at, err = sinceBoot()
	return c, err
}

// second tells for how much of the last second the server waited, and what the agent sees of it.
func (s *suspicion) second() (is culpritSecond, err error) {
	now, err := s.look()
	if err != nil {
		return is, err
	}
	length := max(now.at-s.last.at, 1)
	is.waits, is.seen = 100*float64(now.waited-s.last.waited)/float64(length), unknown
	s.last = now
	uid := s.online.uid()
	load, err := s.meter.Measure(map[string]model.PodGroup{uid: {Dir: s.kubelet.dir(s.online)}}, []model.Detail{{UID: uid, Seconds: true, Delays: true}})
	if err != nil {
		return is, fmt.Errorf("measuring as the agent does: %w", err)
	}
	if permille, at := model.Waited(&load.Pod(uid).Usage, s.online.limitMilli); at != s.seen {
		s.seen, is.seen = at, float64(permille)/10
	}
	return is, nil
}

// accused reads in the agent's journal who was named and throttled. Pods have the names there that people have for them.
func (s *suspicion) accused() error {
	names := map[string]string{s.online.uid(): s.online.name}
	for _, n := range s.neighbours {
		names[n.pod.uid()] = n.pod.name
	}
	var t tale
	err := eachRound(filepath.Join(s.dir, "run"), t.take)
	for _, a := range t.all {
		a.at -= s.began
		if name, found := names[a.who]; found {
			a.who = name
		}
		s.run.accusals = append(s.run.accusals, a)
	}
	return err
}

// sinceBoot returns the time on the clock of the agent's measurements.
func sinceBoot() (time.Duration, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 0, fmt.Errorf("asking for the time since boot: %w", err)
	}
	return time.Duration(t.Nano()), nil
}
