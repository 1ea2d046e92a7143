// Package agent is the shell around the decisions on one node: it observes, lets package decide decide, acts, and comes
// back when something changed. One goroutine owns all state; everything else only wakes it.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	acthost "github.com/waterline-io/waterline/internal/act/host"
	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/decide/node"
	"github.com/waterline-io/waterline/internal/journal"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/nri"
	"github.com/waterline-io/waterline/internal/observe/host"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

// The files in the run directory. It belongs on a file system that goes with a reboot, as cgroups do.
const (
	UndoFile = "undo"
	lockFile = "lock"
)

const (
	pause     = 10 * time.Millisecond // between two rounds, so that a burst of changes is one round
	heartbeat = 2 * time.Second
	stalled   = 5 * time.Second
	searching = 2 * time.Second // the kernel for memory that a batch pod is asked for
)

// Pods tells which pods the node has.
type Pods interface {
	Run(ctx context.Context)
	Wake() <-chan struct{}
	Snapshot() kube.Snapshot
}

// Config says what an agent works on.
type Config struct {
	CgroupRoot   string                                // where the cgroup file system is mounted
	Kubepods     string                                // directory of all pods, relative to the CPU hierarchy; "": find it
	SelfUID      string                                // of the agent's own pod; "" outside a cluster
	RunDir       string                                // for the undo record, the journal and the lock
	StateDir     string                                // for what was learned of the online pods, which is to outlive a reboot; "": nothing does
	SyncPeriod   time.Duration                         // between two audits
	JournalBytes int64                                 // that the journal may take
	Sys          string                                // where sysfs is mounted
	Proc         string                                // where procfs is mounted; "": at host.DefaultProc
	Policies     func() ([]model.ClusterPolicy, error) // of this node alone; nil: those that Pods tells of
	Pods         Pods
	Kubelet      func(ctx context.Context) (model.Kubelet, error)                              // its settings; nil: never asked
	CPUPool      func(ctx context.Context) (kube.CPUPool, error)                               // asked while they say policy static; nil: never asked
	Notify       func(ctx context.Context, n model.Notice) error                               // nil: notices are only logged
	Publish      func(ctx context.Context, uid string, stands, should []model.Published) error // nil: nothing is sold
	Report       func(ctx context.Context, uid string, r model.Report) error                   // nil: nobody is told about the node
	SetCondition func(ctx context.Context, c model.Condition) error                            // nil: pods get no conditions
	NRI          string                                                                        // the container runtime's socket for plugins; "": it is not asked
	Log          *slog.Logger
}

// Agent keeps one node as its policy says.
type Agent struct {
	cfg      Config
	log      *troubles
	nri      *nri.Client // nil: the runtime is not asked
	requests chan func() // run by the loop, for those who want to see its state
	born     time.Time
	beat     atomic.Int64            // when the loop last went round, since born; the wall clock may be set meanwhile
	ready    atomic.Pointer[string]  // why it is not ready; nil: it is
	poolNews chan struct{}           // the kubelet may have handed out CPUs
	placing  atomic.Pointer[placing] // what answers the container runtime; nil: nothing was decided yet

	// What follows belongs to the loop.
	mount      host.Mount
	watcher    *host.Watcher // nil: the kernel had none for us
	noWatcher  error         // why there is none
	watch      func()        // tries to get one
	unwatched  chan error    // why the watcher ended
	tree       *host.Tree
	host       *acthost.Host
	reclaimer  *acthost.Reclaimer // nil: this node cannot
	asked      bool               // a batch pod is asked for memory
	gave       *model.Reclaimed   // what came of it; nil: nothing that a round does not know
	journal    *journal.Journal
	ruling     ruling
	kubelet    model.Kubelet
	pods       kube.Snapshot
	follow     map[string]bool // UIDs of pods whose cgroup is watched
	topology   *model.Topology // nil: not read yet
	seenCPUs   model.CPUSet    // CPUs that pods may run on, when the topology was read
	usesCPUs   bool            // the machine's topology counts
	bindsAll   bool            // the CPUs of every pod may depend on what others have
	state      node.State
	memory     *memory
	meter      *host.Meter
	load       *model.Load // nil: nothing was measured yet
	closer     closer
	figures    figures
	plan       model.Plan
	incidents  []model.Incident
	changes    host.Changes
	notices    *notices
	conditions *conditions
	teller     *Teller
	allowances allowances
	counts     counts
	trials     trials
	departures departures
	nextAudit  time.Time
	nextLook   time.Time // when the node is measured next
	glances    *glances
	glancer    *host.Glancer // there as soon as tree is
	lastRound  time.Time
	unsettled  bool // something is known that the last round did not know
	rose       bool // a glance showed that batch must be given less
}

// New returns an agent that does nothing yet.
func New(cfg Config) *Agent {
	if cfg.Proc == "" {
		cfg.Proc = host.DefaultProc
	}
	a := &Agent{
		cfg: cfg, log: newTroubles(cfg.Log), requests: make(chan func()), follow: map[string]bool{}, closer: closer{near: map[string]bool{}, from: map[string]int64{}, wait: map[string]bool{}},
		born: time.Now(), unwatched: make(chan error, 1), poolNews: make(chan struct{}, 1),
	}
	a.allowances.dir = filepath.Join(cfg.RunDir, PodsDir)
	a.glances = newGlances(a.log)
	a.notices = newNotices(cfg.Notify, a.log)
	a.conditions = newConditions(cfg.SetCondition, a.log)
	a.teller = newTeller(cfg.Publish, cfg.Report, a.log)
	if cfg.NRI != "" {
		a.nri = nri.New(nri.Config{Socket: cfg.NRI, Place: a.place, Report: a.log.report})
	}
	a.notReady("starting")
	return a
}

// Run works until the context ends and leaves the values that stand then. It fails at once where it could never work: no
// CPU controller, a run directory that cannot be used or that another agent uses.
func (a *Agent) Run(ctx context.Context) error {
	lock, err := a.lock()
	if err != nil {
		return err
	}
	defer lock.Close()
	if !host.InMemory(a.cfg.RunDir) {
		// A write must wait for its undo record. On a busy disk that was measured to take up to a second.
		a.cfg.Log.Warn("the run directory is on a disk; on a tmpfs, as /run is, repairs would not wait for it", "dir", a.cfg.RunDir)
	}
	if a.mount, err = host.FindMount(a.cfg.CgroupRoot); err != nil {
		return err
	}
	undo, err := acthost.OpenUndo(filepath.Join(a.cfg.RunDir, UndoFile))
	if undo == nil {
		return err
	}
	a.log.report("undo", err)
	if a.host, err = acthost.New(a.mount.Version, a.mount.OfKnob, undo); err != nil {
		return err
	}
	defer func() { a.log.report("closing", a.host.Close()) }()
	if a.memory, err = newMemory(a.cfg.RunDir, a.cfg.StateDir); err != nil {
		return err
	}
	a.state, err = a.memory.load()
	a.log.report("state", err)
	if a.journal, err = journal.Open(a.cfg.RunDir, a.cfg.JournalBytes); err != nil {
		return err
	}
	defer func() { a.log.report("closing", a.journal.Close()) }()

	var helpers sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	defer func() { cancel(); helpers.Wait() }()
	kubelets := make(chan model.Kubelet, 1)
	helpers.Go(func() { a.cfg.Pods.Run(ctx) })
	helpers.Go(func() { a.askKubelet(ctx, kubelets) })
	helpers.Go(func() { a.memory.copy(ctx, a.log) })
	helpers.Go(func() { a.notices.run(ctx) })
	helpers.Go(func() { a.conditions.run(ctx) })
	helpers.Go(func() { a.teller.Run(ctx) })
	helpers.Go(func() { a.glances.run(ctx) })
	if a.nri != nil {
		// Not before we are the only agent: with two that set CPUs, the runtime creates no containers.
		helpers.Go(func() { a.nri.Run(ctx) })
	}
	a.watch = func() {
		watcher, err := host.NewWatcher(a.mount.Version)
		if a.noWatcher = err; err != nil {
			return
		}
		a.watcher = watcher
		helpers.Go(func() {
			if err := watcher.Run(ctx); err != nil {
				a.unwatched <- err
			}
		})
	}
	a.watch()
	if a.mount.Version == cgroup.V2 && a.mount.Memory != "" {
		if a.reclaimer, err = acthost.NewReclaimer(a.mount.Memory, searching); err != nil {
			return err
		}
		helpers.Go(func() { a.reclaimer.Run(ctx) })
	}
	a.loop(ctx, kubelets)
	a.leave()
	a.log.report("state", a.memory.last(&a.state, time.Now()))
	if a.tree != nil {
		a.tree.Close()
		a.meter.Close()
	}
	return nil
}

// leave undoes what must not outlive the agent. All else stays as it is.
func (a *Agent) leave() {
	plan := node.Leave(a.host.Owned())
	if len(plan.Settings) == 0 {
		return
	}
	_, err := a.host.Apply(&plan)
	a.log.report("apply", err)
}

// lock makes sure that one agent at a time uses the run directory.
func (a *Agent) lock() (*os.File, error) {
	if err := os.MkdirAll(a.cfg.RunDir, 0o755); err != nil {
		return nil, fmt.Errorf("making the run directory: %w", err)
	}
	return Lock(a.cfg.RunDir)
}

// Lock takes the run directory for one process, until the file is closed.
func Lock(runDir string) (*os.File, error) {
	path := filepath.Join(runDir, lockFile)
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the run directory: %w", err)
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("another agent uses %s; stop it, or choose another directory with --run-dir: %w", runDir, err), file.Close())
	}
	return file, nil
}

// loop waits for something to happen, looks whether it matters, and decides anew if it does.
//
// It stays on one thread: without that, what it reads is cold in the cache of another CPU each time.
func (a *Agent) loop(ctx context.Context, kubelets <-chan model.Kubelet) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	a.pods = a.cfg.Pods.Snapshot()
	a.loadPolicy(time.Now())
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		podsChanged := false
		var watched <-chan struct{}
		if a.watcher != nil {
			watched = a.watcher.Wake()
		}
		select {
		case <-ctx.Done():
			return
		case <-watched:
		case err := <-a.unwatched:
			a.log.report("watch", err)
			a.watcher, a.noWatcher, a.nextAudit = nil, err, time.Time{}
			if a.tree != nil {
				a.tree.Watch(nil)
			}
		case <-a.cfg.Pods.Wake():
			podsChanged = true
		case kubelet := <-kubelets:
			a.unsettled = a.unsettled || kubelet != a.kubelet
			a.kubelet = kubelet
		case gave := <-a.gives():
			a.take(gave)
		case request := <-a.requests:
			request()
			continue
		case seen := <-a.glances.rose:
			if !a.rise(seen) {
				continue
			}
		case <-timer.C:
			podsChanged = a.loadPolicy(time.Now())
		}
		if rest := pause - time.Since(a.lastRound); rest > 0 {
			time.Sleep(rest)
		}
		a.turn(podsChanged)
		a.beat.Store(int64(time.Since(a.born)))
		timer.Reset(a.untilNext())
	}
}

// untilNext returns how long nothing needs to be done unless something happens.
func (a *Agent) untilNext() time.Duration {
	next := heartbeat
	for _, at := range []time.Time{a.nextAudit, a.nextLook, a.plan.Next} {
		if !at.IsZero() {
			next = min(next, time.Until(at))
		}
	}
	if a.unsettled && a.tree != nil {
		next = 0
	}
	return max(next, 0)
}

// turn looks at what happened and decides anew if anything is different from what the last round saw.
func (a *Agent) turn(podsChanged bool) {
	now := time.Now()
	if a.tree == nil && !a.findPods() {
		return
	}
	if a.watcher != nil {
		a.watcher.Take(&a.changes)
	}
	if podsChanged {
		a.pods = a.cfg.Pods.Snapshot()
		a.loadPolicy(now)
		a.refollow()
		a.unsettled = true
	}
	audit := a.changes.Overflow || !now.Before(a.nextAudit)
	if audit && a.watcher == nil {
		if a.watch(); a.watcher != nil {
			a.tree.Watch(a.watcher)
		}
	}
	if podsChanged || a.changes.Tree {
		a.doubtPool()
	}
	if podsChanged || audit || a.changes.Tree {
		a.scan()
	}
	if audit {
		a.counts.audits++
		a.nextAudit = now.Add(a.cfg.SyncPeriod)
		a.tree.WatchSettings(a.plan.Settings)
		a.unsettled = a.host.CheckAll() || a.unsettled
		if a.ruling.effect.Policy.Protect.Memory {
			a.unsettled = a.tree.DetectMemoryQoS() || a.unsettled
		}
	} else {
		for name := range a.changes.Files {
			a.unsettled = a.host.Check(name) || a.unsettled
			if name.Knob == model.Cpuset && name.Dir == a.tree.Model().Guaranteed {
				a.scan() // where pods may run at all
			}
		}
	}
	if soon := now.Add(time.Second); a.tree.Unwatched() != nil && soon.Before(a.nextAudit) {
		a.nextAudit = soon // what is not watched must be polled
	}
	due := a.unsettled || a.rose || !a.plan.Next.IsZero() && !now.Before(a.plan.Next)
	if looked := a.look(now); due || looked {
		a.rose = false
		a.round(now, due)
		if looked {
			a.figures.note(a.load, a.pods.Pods, a.plan.Slack, a.plan.Suppress)
		}
	}
	a.watchDemand()
	a.assess()
}

// round decides what the node should be like and makes it so. A round for which there was no reason but that time went by
// is written down only if it decided something new.
func (a *Agent) round(now time.Time, reason bool) {
	round := journal.Round{
		Node:   a.node(now),
		Policy: a.ruling.effect.Policy,
		State:  a.state,
	}
	round.Node.Confined = a.host.Confined() // which counts as told from now on
	round.Node.Reclaimed, a.gave = a.gave, nil
	round.Plan, a.state = node.Decide(round.Node, round.Policy, round.State)
	news := reason || !sameDecisions(&a.plan, &round.Plan)
	a.trials.note(a.plan.Interference, round.Plan.Interference)
	a.departures.note(a.plan.Evict, round.Plan.Evict)
	a.plan = round.Plan
	if a.pods.Known {
		a.placing.Store(&placing{
			version: a.mount.Version, policy: round.Policy, kubelet: a.kubelet,
			topology: round.Node.Topology, pods: a.pods.Pods, cpus: a.plan.CPUs,
		})
	}
	if a.memory.due(&a.state, now) {
		// Before the kernel is told, as with the undo record: a restart must find who has which CPUs.
		a.log.report("state", a.memory.save(&a.state, now))
	}
	a.tree.WatchSettings(round.Plan.Settings)
	var err error
	a.incidents, err = a.host.Apply(&round.Plan)
	a.log.report("apply", err)
	a.ask(round.Plan.Reclaim)
	a.unsettled = refused(a.incidents)
	a.lastRound = time.Now()
	a.counts.rounds++
	a.counts.duration = a.lastRound.Sub(now)
	// After the kernel has what it needs: what is only for people can wait.
	if news {
		a.log.report("journal", a.journal.Append(&round))
	}
	if a.pods.Known && a.ruling.effect.Policy.Mode == model.ModeEnforce {
		a.log.report("allowances", a.allowances.write(a.pods.Pods, a.plan.Suppress, a.plan.Interference, now))
	} else {
		a.log.report("allowances", a.allowances.write(nil, nil, nil, now))
	}
	a.notices.post(round.Plan.Notices)
	if a.pods.Known {
		a.conditions.post(round.Plan.Conditions, a.pods.Pods)
		a.teller.Post(&round.Plan.Publish, a.pods.UID, a.pods.Published, a.report(), a.pods.Reported)
	}
	if uses, binds := a.useOfCPUs(); uses != a.usesCPUs || binds != a.bindsAll {
		a.refollow()
		a.scan()
	}
}

// refused reports whether something could not be written, which the next round must know before it tries again.
func refused(incidents []model.Incident) bool {
	for _, i := range incidents {
		if i.Kind != model.Overwritten {
			return true
		}
	}
	return false
}

// assess decides whether the agent is ready.
func (a *Agent) assess() {
	switch {
	case !a.pods.Known:
		a.notReady("the pods of this node are not known yet")
	case a.tree.Model().ReadOnly:
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

// Ready returns nil while the agent does its work, otherwise why it does not.
func (a *Agent) Ready() error {
	if why := a.ready.Load(); why != nil {
		return errors.New(*why)
	}
	return a.Healthy()
}

// Healthy returns nil while the loop goes round.
func (a *Agent) Healthy() error {
	if since := time.Since(a.born) - time.Duration(a.beat.Load()); since > stalled {
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
		return fmt.Errorf("asking the agent's loop: %w", ctx.Err())
	}
	<-done
	return nil
}
