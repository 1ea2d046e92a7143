// Package machine is the agent's side of the kernel: it finds the node's cgroups, observes what plans need observed,
// brings files to plans and notices other writers. It also has the figures of services fetched. It decides nothing. All
// of it belongs to the agent's loop, but for what Start runs beside it.
package machine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"
	"time"

	acthost "github.com/waterline-io/waterline/internal/act/host"
	"github.com/waterline-io/waterline/internal/agent/trouble"
	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/host"
	"github.com/waterline-io/waterline/internal/observe/service"
)

// UndoFile is the name of the undo record in the run directory.
const UndoFile = "undo"

// reclaims is how long the kernel may search a batch pod for memory to reclaim.
const reclaims = 2 * time.Second

// Config is the configuration of a machine.
type Config struct {
	CgroupRoot string // where the cgroup file system is mounted
	Kubepods   string // directory of all pods, relative to the CPU hierarchy; "": find it
	SelfUID    string // of the agent's own pod; "" outside a cluster
	NodeName   string // in the cluster, for queries; "" outside a cluster
	RunDir     string // has the undo record
	Sys        string // where sysfs is mounted
	Proc       string // where procfs is mounted; "": at host.DefaultProc
	Log        *trouble.Log
}

// Machine is the machine that the agent runs on.
type Machine struct {
	cfg   Config
	log   *trouble.Log
	mount host.Mount
	files *acthost.Host

	watcher   *host.Watcher // nil: there is none
	noWatcher error         // why
	watch     func()        // tries to make one
	unwatched chan error    // why the watcher ended
	changes   host.Changes

	tree      *host.Tree // nil: the kubelet's cgroups were not found yet
	meter     *host.Meter
	sampler   *host.Waits
	looks     *looks
	services  *service.Fetcher
	waits     []model.PodWait // buffers of the last observation
	figures   []model.ServiceFigure
	reclaimer *acthost.Reclaimer // nil: this kernel has no memory.reclaim
	reclaimed *model.Reclaimed   // since the last round; nil: nothing
	claiming  bool               // a batch pod has memory reclaimed

	observed model.Observe   // what the last plan needs observed
	topology *model.Topology // nil: not read yet
	isolated model.CPUSet    // which the kernel keeps out of load balancing; it changes only at a boot
	seenCPUs model.CPUSet    // CPUs that pods may run on, when the topology was read
	load     *model.Load     // nil: nothing was measured yet
	nextLoad time.Time       // when the load is measured next

	// News is true when something changed that no round has observed. The loop clears it.
	News bool
}

// Open opens the files of a machine. It fails where the agent could never work: without a CPU controller, or if the
// undo record cannot be used.
func Open(cfg Config) (*Machine, error) {
	if cfg.Proc == "" {
		cfg.Proc = host.DefaultProc
	}
	m := &Machine{
		cfg: cfg, log: cfg.Log, unwatched: make(chan error, 1), looks: newLooks(cfg.Log),
		services: service.New(cfg.NodeName),
	}
	if !host.InMemory(cfg.RunDir) {
		// A write must wait for its undo record. On a busy disk that was measured to take up to a second.
		m.log.Warn("the run directory is on a disk; on a tmpfs, as /run is, repairs would not wait for it", "dir", cfg.RunDir)
	}
	var err error
	if m.mount, err = host.FindMount(cfg.CgroupRoot); err != nil {
		return nil, err
	}
	undo, err := acthost.OpenUndo(filepath.Join(cfg.RunDir, UndoFile))
	if undo == nil {
		return nil, err
	}
	m.log.Report("undo", err)
	if m.files, err = acthost.New(m.mount.Version, m.mount.OfKnob, undo); err != nil {
		return nil, err
	}
	if foreign := m.files.Foreign(); len(foreign) > 0 {
		m.log.Warn("a newer version of Waterline wrote files that this one does not know; restore them with that version",
			"files", foreign)
	}
	if m.mount.Version == cgroup.V2 && m.mount.Memory != "" {
		if m.reclaimer, err = acthost.NewReclaimer(m.mount.Memory, reclaims); err != nil {
			return nil, errors.Join(err, m.files.Close())
		}
	}
	return m, nil
}

// Start runs what works beside the loop until the context ends.
func (m *Machine) Start(ctx context.Context, beside *sync.WaitGroup) {
	beside.Go(func() { m.looks.run(ctx) })
	beside.Go(func() { m.services.Run(ctx) })
	if m.reclaimer != nil {
		beside.Go(func() { m.reclaimer.Run(ctx) })
	}
	m.watch = func() {
		watcher, err := host.NewWatcher(m.mount.Version)
		if m.noWatcher = err; err != nil {
			return
		}
		m.watcher = watcher
		beside.Go(func() {
			if err := watcher.Run(ctx); err != nil {
				m.unwatched <- err
			}
		})
	}
	m.watch()
}

// Close closes all files, once the loop has ended.
func (m *Machine) Close() error {
	if m.tree != nil {
		m.tree.Close()
		m.meter.Close()
	}
	return m.files.Close()
}

// V2 reports whether the cgroups are of version 2.
func (m *Machine) V2() bool { return m.mount.Version == cgroup.V2 }

// Found reports whether the kubelet's cgroups were found.
func (m *Machine) Found() bool { return m.tree != nil }

// Find searches the kubelet's cgroups. The error is the reason why there are none.
func (m *Machine) Find() error {
	layout, err := m.layout()
	m.log.Report("cgroups", err)
	if err != nil {
		return err
	}
	m.log.Info("found the pods", "cgroup", m.mount.Version.String(), "driver", layout.Driver.String(), "kubepods",
		layout.Root)
	m.isolated, err = host.IsolatedCPUs(m.cfg.Sys)
	m.log.Report("topology", err)
	m.tree = host.NewTree(m.mount, layout, m.watcher)
	m.meter = host.NewMeter(m.mount, layout, m.cfg.Proc)
	m.sampler = host.NewWaits(m.mount, layout, m.cfg.Proc)
	m.News = true
	return nil
}

func (m *Machine) layout() (cgroup.Layout, error) {
	if m.cfg.Kubepods == "" {
		return host.FindKubepods(m.mount, m.cfg.SelfUID)
	}
	layout, ok := cgroup.ParseLayout(m.cfg.Kubepods)
	if !ok {
		return cgroup.Layout{},
			fmt.Errorf("--kubepods %q: its last part must be kubepods or end in kubepods.slice", m.cfg.Kubepods)
	}
	return layout, nil
}

// Changed delivers a value when another writer may have changed a file or a directory.
func (m *Machine) Changed() <-chan struct{} {
	if m.watcher == nil {
		return nil
	}
	return m.watcher.Wake()
}

// Unwatched delivers the reason why the watcher ended, for [Machine.Poll].
func (m *Machine) Unwatched() <-chan error { return m.unwatched }

// Poll works without a watcher from now on, until an audit makes another one.
func (m *Machine) Poll(why error) {
	m.log.Report("watch", why)
	m.watcher, m.noWatcher = nil, why
	if m.tree != nil {
		m.tree.Watch(nil)
	}
}

// TakeChanges takes what the watcher noticed since the last call. It reports whether directories came or went, and
// whether so much happened that everything must be audited.
func (m *Machine) TakeChanges() (tree, overflow bool) {
	if m.watcher != nil {
		m.watcher.Take(&m.changes)
	}
	return m.changes.Tree, m.changes.Overflow
}

// CheckChanges reads the files that the last changes name.
func (m *Machine) CheckChanges() {
	for name := range m.changes.Files {
		m.News = m.files.Check(name) || m.News
		if name.Knob == model.Cpuset && name.Dir == m.tree.Model().Guaranteed {
			m.Scan() // the CPUs on which pods may run at all
		}
	}
}

// Audit compares all files of a plan with the kernel, and makes a watcher where there is none.
func (m *Machine) Audit(settings []model.Setting) {
	if m.watcher == nil {
		if m.watch(); m.watcher != nil {
			m.tree.Watch(m.watcher)
		}
	}
	m.tree.WatchSettings(settings)
	m.News = m.files.CheckAll() || m.News
	if m.observed.MemoryQoS {
		m.News = m.tree.DetectMemoryQoS() || m.News
	}
}

// Watched reports whether every file is watched. If not, files must be audited each second.
func (m *Machine) Watched() bool { return m.tree != nil && m.tree.Unwatched() == nil }

// ReadOnly reports whether the cgroup file system is mounted read-only.
func (m *Machine) ReadOnly() bool { return m.tree.Model().ReadOnly }

// Scan lists the cgroups, and reports whether they changed.
func (m *Machine) Scan() bool {
	changed, err := m.tree.Scan(m.follows)
	listed, listErr := m.tree.ReadLists(func(uid string) bool { return model.FindDetail(m.observed.Pods, uid).CPUs })
	m.log.Report("cgroups", errors.Join(err, listErr))
	m.News = m.News || changed || listed
	for _, dir := range m.tree.Recreated() {
		m.News = m.files.CheckDir(dir) || m.News
	}
	blind := m.tree.Unwatched()
	switch {
	case m.watcher == nil:
		blind = m.noWatcher
	case errors.Is(blind, fs.ErrNotExist):
		blind = nil // the directory went between listing and watching, which is no failure
	}
	m.log.Report("watch", blind)
	return changed || listed
}

// FindOutside finds the pods whose containers run outside of the pods' cgroups.
func (m *Machine) FindOutside(pods []*model.Pod) {
	changed, err := m.tree.FindOutside(pods)
	m.log.Report("containers", err)
	m.News = m.News || changed
}

// Apply writes the files of a plan and starts its reclaim. It returns the kernel's refusals.
func (m *Machine) Apply(plan *model.Plan) []model.Incident {
	m.tree.WatchSettings(plan.Settings)
	incidents, err := m.files.Apply(plan)
	m.log.Report("apply", err)
	if plan.Reclaim != nil && m.reclaimer != nil {
		m.claiming = true
		m.reclaimer.Ask(*plan.Reclaim)
	}
	m.looks.compare(m.sampler, &plan.Observe)
	m.services.Need(plan.Observe.Services)
	return incidents
}

// Owned returns the files on the undo record.
func (m *Machine) Owned() []model.Owned { return m.files.Owned() }

// Restored reports whether nothing is left to restore, also not by a newer version of Waterline.
func (m *Machine) Restored() bool { return len(m.Owned()) == 0 && len(m.files.Foreign()) == 0 }

// Status returns the plan's files in matching directories.
func (m *Machine) Status(match func(dir string) bool) []model.FileStatus {
	return m.files.Status(match)
}

// Stats counts the writes so far.
func (m *Machine) Stats() acthost.Stats { return m.files.Stats() }

// Reclaimed delivers the result of a reclaim, for [Machine.TakeReclaimed].
func (m *Machine) Reclaimed() <-chan model.Reclaimed {
	if m.reclaimer == nil {
		return nil
	}
	return m.reclaimer.Done()
}

// TakeReclaimed keeps the result of a reclaim for the next round.
func (m *Machine) TakeReclaimed(r model.Reclaimed) { m.claiming, m.reclaimed, m.News = false, &r, true }

// Waited delivers a value when an online pod waited longer than its mark says, for [Machine.TakeWaited].
func (m *Machine) Waited() <-chan struct{} { return m.looks.waited }

// Sampled counts the online pods whose waits are sampled; nil: none are.
func (m *Machine) Sampled() *model.SampledPods { return m.looks.count() }

// TakeWaited reports whether a pod still waited longer than its mark says: a round may have come since.
func (m *Machine) TakeWaited() bool {
	m.waits = m.looks.take(m.waits[:0])
	long := exceeded(m.observed.Waits, m.waits)
	m.News = m.News || long
	return long
}
