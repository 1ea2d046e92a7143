// Package agent is the shell around the decisions on one node: it observes, calls package decide/node, acts, and starts
// again when something changes. One goroutine, the loop, owns all state; everything else only wakes it.
//
// The packages beside the loop: kernel is its side of cgroups and files, policy finds the one that governs, kubelet
// reads what the API does not contain, apiwriter writes to the API, store keeps state on disk, metrics and serve show
// the state.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waterline-io/waterline/internal/agent/apiwriter"
	"github.com/waterline-io/waterline/internal/agent/faillog"
	"github.com/waterline-io/waterline/internal/agent/kernel"
	"github.com/waterline-io/waterline/internal/agent/loopview"
	"github.com/waterline-io/waterline/internal/agent/metrics"
	"github.com/waterline-io/waterline/internal/agent/policy"
	"github.com/waterline-io/waterline/internal/agent/store"
	"github.com/waterline-io/waterline/internal/decide/node"
	"github.com/waterline-io/waterline/internal/model"
)

// Pods reports the pods of the node.
type Pods interface {
	Run(ctx context.Context)
	Wake() <-chan struct{}
	Snapshot() model.Snapshot
}

// Kubelet reads what the agent must know of the kubelet beside the API.
type Kubelet interface {
	// Run delivers the kubelet's settings and CPU allocations each time that they change.
	Run(ctx context.Context, answers chan<- model.Kubelet)
	// Doubt has the CPU allocations read again soon.
	Doubt()
}

// noKubelet is the kubelet of an agent that has none.
type noKubelet struct{}

// Run implements [Kubelet].
func (noKubelet) Run(context.Context, chan<- model.Kubelet) {}

// Doubt implements [Kubelet].
func (noKubelet) Doubt() {}

// Runtime is the container runtime's plugin interface. It runs once this is the only agent of the node: with two that
// set CPUs, the runtime creates no containers.
type Runtime interface {
	Run(ctx context.Context)
}

// Config is the configuration of an agent.
type Config struct {
	CgroupRoot   string        // where the cgroup file system is mounted
	Kubepods     string        // directory of all pods, relative to the CPU hierarchy; "": find it
	SelfUID      string        // of the agent's own pod; "" outside a cluster
	NodeName     string        // in the cluster; "" outside a cluster
	RunDir       string        // for the undo record, the journal, the state and the lock
	StateDir     string        // for the learned usage of online pods, which outlives a reboot; "": none
	SyncPeriod   time.Duration // between two audits
	JournalBytes int64         // size of the journal, at most
	Sys          string        // where sysfs is mounted
	Proc         string        // where procfs is mounted; "": at host.DefaultProc
	LeanMetrics  bool          // serves the metrics of the lean profile only
	Koordinator  bool          // sells under Koordinator's resource names

	Pods     Pods
	Policies func() ([]model.ClusterPolicy, error)     // of this node alone; nil: those of the cluster
	Kubelet  func(log *faillog.Log) Kubelet            // nil: its settings are never read
	Runtime  func(a Answers, log *faillog.Log) Runtime // nil: containers start without CPUs and limits of ours
	API      apiwriter.Config                          // writes to the API
	Log      *slog.Logger
}

// Agent applies the governing policy to one node.
type Agent struct {
	cfg      Config
	log      *faillog.Log
	requests chan func() // run by the loop
	born     time.Time
	beat     atomic.Int64                 // last turn of the loop, since born; the wall clock may be set meanwhile
	ready    atomic.Pointer[string]       // why it is not ready; nil: it is
	placing  atomic.Pointer[node.Placing] // places containers; nil: nothing was decided yet
	started  *inbox
	apiAway  atomic.Bool // a pod was awaited in vain, and the API has shown nothing since
	poller   Kubelet
	writer   *apiwriter.Writer

	// What follows belongs to the loop.
	kernel    *kernel.Kernel
	policy    policy.Governing
	pods      model.Snapshot
	kept      *model.Snapshot // what the API showed an earlier agent; nil: it shows something now, or nothing was kept
	kubelet   model.Kubelet
	state     node.State
	plan      model.Plan
	incidents []model.Incident         // of the last plan's writes
	reported  []model.RuntimeContainer // that the runtime reported, whose ids the API does not show yet
	waiting   []start                  // that the runtime holds back until their files are written
	store     *store.Store
	recorder  metrics.Recorder
	nextAudit time.Time
	changed   bool // an input that is not the kernel's changed since the last round
	lastRound time.Time
}

// New returns an agent that does nothing yet.
func New(cfg Config) *Agent {
	log := faillog.New(cfg.Log)
	a := &Agent{
		cfg: cfg, log: log, requests: make(chan func()), born: time.Now(),
		writer: apiwriter.New(cfg.API, log), policy: policy.Governing{File: cfg.Policies, Log: log},
		poller: noKubelet{}, started: newInbox(),
	}
	if cfg.Kubelet != nil {
		a.poller = cfg.Kubelet(log)
	}
	a.notReady("starting")
	return a
}

// Run works until the context ends. It leaves the last values, and its own files for the next agent. If it was switched
// off and has restored everything, as before an uninstallation, it removes its own files. It fails at once if it could
// never work: without a CPU controller, or with a run directory that is unusable or in use by another agent.
func (a *Agent) Run(ctx context.Context) error {
	var err error
	if a.store, err = store.Open(a.cfg.RunDir, a.cfg.StateDir, a.cfg.JournalBytes); err != nil {
		return err
	}
	forGood := false
	defer func() {
		if forGood {
			a.log.Report("state", a.store.Remove(kernel.UndoFile))
		}
		a.log.Report("closing", a.store.Close())
	}()
	a.kernel, err = kernel.Open(kernel.Config{
		CgroupRoot: a.cfg.CgroupRoot, Kubepods: a.cfg.Kubepods, SelfUID: a.cfg.SelfUID, RunDir: a.cfg.RunDir,
		NodeName: a.cfg.NodeName, Sys: a.cfg.Sys, Proc: a.cfg.Proc, Log: a.log,
	})
	if err != nil {
		return err
	}
	defer func() { a.log.Report("closing", a.kernel.Close()) }()
	a.state, err = a.store.State.Load()
	a.log.Report("state", err)
	kept, found, err := a.store.Pods.Load()
	if a.log.Report("podlist", err); found {
		a.kept = &kept
	}

	var beside sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	defer func() { cancel(); beside.Wait() }()
	kubelets := make(chan model.Kubelet, 1)
	beside.Go(func() { a.cfg.Pods.Run(ctx) })
	beside.Go(func() { a.poller.Run(ctx, kubelets) })
	beside.Go(func() { a.store.State.Copy(ctx, a.log) })
	beside.Go(func() { a.writer.Run(ctx) })
	if a.cfg.Runtime != nil {
		answers := Answers{
			Place: a.place, Start: a.start,
			Runs: func(c model.RuntimeContainer) { a.started.put(start{RuntimeContainer: c}) },
		}
		runtime := a.cfg.Runtime(answers, a.log)
		beside.Go(func() { runtime.Run(ctx) })
	}
	a.kernel.Start(ctx, &beside)
	a.loop(ctx, kubelets)
	a.leave()
	if forGood = a.policy.Off() && a.kernel.Restored(); !forGood {
		a.log.Report("state", a.store.State.Last(&a.state, time.Now()))
	}
	return nil
}

// leave limits batch by arithmetic, because nobody looks at waits until an agent starts again, and undoes what must not
// outlive the agent. Everything else stays.
func (a *Agent) leave() {
	if !a.kernel.Found() {
		return
	}
	now := time.Now()
	if a.plan.Suppress != nil {
		n := a.observe(now, a.kernel.ObserveOnce())
		n.Stopping = true
		r := node.Round{Node: n, Policy: *a.policy.Policy(), State: a.state}
		r.Plan, a.state = node.Decide(r.Node, r.Policy, r.State)
		a.incidents = a.kernel.Apply(&r.Plan)
		a.log.Report("journal", a.store.Journal.Append(&r))
	}
	if plan := node.Leave(a.kernel.Owned()); len(plan.Settings) > 0 {
		a.kernel.Apply(&plan)
	}
}

// place places a container by the last round. CPUs that the runtime would set under policy static are ones that the
// kubelet has just assigned, perhaps of a pod that has them by Waterline: which ones is then read again.
func (a *Agent) place(c model.RuntimeContainer) (model.Placement, bool) {
	placing := a.placing.Load()
	if placing != nil && placing.Kubelet.StaticCPUs && !c.Update && c.CPUs != "" {
		a.poller.Doubt()
	}
	return placing.Place(c)
}

// assess decides whether the agent is ready.
func (a *Agent) assess() {
	switch {
	case !a.pods.Known || a.kept != nil:
		a.notReady("the pods of this node are not known yet")
	case a.kernel.ReadOnly():
		a.notReady("the cgroup file system is mounted read-only")
	default:
		a.ready.Store(nil)
	}
}

func (a *Agent) notReady(why string) {
	if old := a.ready.Load(); old == nil || *old != why {
		a.ready.Store(&why)
	}
}

// Ready returns nil while the agent works, otherwise the reason why not.
func (a *Agent) Ready() error {
	if why := a.ready.Load(); why != nil {
		return errors.New(*why)
	}
	return a.Healthy()
}

// stallTimeout is how long the loop may stand still before the agent counts as unhealthy.
const stallTimeout = 5 * time.Second

// Healthy returns nil while the loop runs.
func (a *Agent) Healthy() error {
	if since := time.Since(a.born) - time.Duration(a.beat.Load()); since > stallTimeout {
		return fmt.Errorf("the loop has stood still for %s", since.Round(time.Second))
	}
	return nil
}

// do runs f where the loop's state may be read.
func (a *Agent) do(ctx context.Context, f func()) error {
	done := make(chan struct{})
	select {
	case a.requests <- func() { f(); close(done) }:
	case <-ctx.Done():
		return fmt.Errorf("waiting for the agent's loop: %w", ctx.Err())
	}
	<-done
	return nil
}

// View is the knowledge of the loop between two rounds.
type View = loopview.View

// View passes the knowledge of the loop to a function, between two rounds.
func (a *Agent) View(ctx context.Context, f func(v *View)) error {
	return a.do(ctx, func() {
		v := &View{
			Node: func(now time.Time) model.Node { return a.observe(now, kernel.Once{}) }, Found: a.kernel.Found(),
			Pods: a.pods.Pods, Policy: *a.policy.Policy(), State: a.state, Plan: &a.plan,
			Files: a.kernel.Status, Topology: a.kernel.Topology,
			Age: time.Since(a.born), Repairs: a.kernel.Stats().Repairs, Troubles: a.log.Standing(),
		}
		if v.Found {
			n := v.Node(time.Now())
			v.Tree, v.Load = n.Tree, n.Load
		}
		f(v)
	})
}

// scrapeTimeout is how long a scrape waits for the loop, which a disk may keep waiting, or a machine whose CPUs stand
// still. It is half of what Prometheus gives a scrape by default.
const scrapeTimeout = 5 * time.Second

// collector makes the metrics when they are scraped, so that they cost nothing in between.
type collector struct{ agent *Agent }

// Collector returns the agent's metrics.
func (a *Agent) Collector() prometheus.Collector { return collector{a} }

// Describe implements [prometheus.Collector]. It describes nothing: the series are known only at a scrape.
func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements [prometheus.Collector].
func (c collector) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	var all []prometheus.Metric
	if err := c.agent.do(ctx, func() { all = c.agent.metrics() }); err != nil {
		out <- prometheus.NewInvalidMetric(prometheus.NewDesc("waterline_scrape", "The agent's loop did not answer.", nil,
			nil), err)
		return
	}
	for _, m := range all {
		out <- m
	}
}

// metrics reads the loop's state.
func (a *Agent) metrics() []prometheus.Metric {
	n := model.Node{Pods: a.pods.Pods, PodsKnown: a.pods.Known}
	v := metrics.View{
		Node: &n, Policy: a.policy.Policy(), Plan: &a.plan, Lean: a.cfg.LeanMetrics,
		BadAnnotations: a.writer.BadAnnotations(), Errors: a.log.Each,
	}
	if a.kernel != nil {
		v.Owned, v.Files, v.Watching = len(a.kernel.Owned()), a.kernel.Stats(), a.kernel.Watched()
		v.Load, v.Sampled = a.kernel.Load(), a.kernel.Sampled()
	}
	return a.recorder.Collect(&v)
}

// placingOf returns the placement of containers after a round. The topology is known on each node whose policy lets
// pods have their own CPUs; where no pod has or had any, the CPUs of every container are others' to set.
func (a *Agent) placingOf(r *node.Round) *node.Placing {
	p := &node.Placing{
		V2: a.kernel.V2(), Policy: r.Policy, Kubelet: a.kubelet, Pods: r.Plan.Pods, CPUs: r.Plan.CPUs,
	}
	if p.CPUs != nil || slices.ContainsFunc(r.Node.Owned, func(o model.Owned) bool { return o.Knob == model.Cpuset }) {
		p.Topology = r.Node.Topology
	}
	return p
}
