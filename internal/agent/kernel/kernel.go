// Package kernel is the agent's side of the kernel: it finds the node's cgroups, observes what plans need observed,
// brings files to plans and notices other writers. It also has the figures of services fetched. It decides nothing. All
// of it belongs to the agent's loop, but for what Start runs beside it.
package kernel

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"
	"time"

	acthost "github.com/waterline-io/waterline/internal/act/host"
	"github.com/waterline-io/waterline/internal/agent/faillog"
	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/host"
	"github.com/waterline-io/waterline/internal/observe/service"
)

// UndoFile is the name of the undo record in the run directory.
const UndoFile = "undo"

// reclaimTimeout is how long the kernel may search a batch pod for memory to reclaim.
const reclaimTimeout = 2 * time.Second

// Config is the configuration of a kernel.
type Config struct {
	CgroupRoot string // where the cgroup file system is mounted
	Kubepods   string // directory of all pods, relative to the CPU hierarchy; "": find it
	SelfUID    string // of the agent's own pod; "" outside a cluster
	NodeName   string // in the cluster, for queries; "" outside a cluster
	RunDir     string // has the undo record
	Sys        string // where sysfs is mounted
	Proc       string // where procfs is mounted; "": at host.DefaultProc
	Log        *faillog.Log
}

// Kernel is the machine that the agent runs on.
type Kernel struct {
	cfg   Config
	log   *faillog.Log
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
	changed  bool            // since the last Apply
}

// Open opens the files of a kernel. It fails where the agent could never work: without a CPU controller, or if the
// undo record cannot be used.
func Open(cfg Config) (*Kernel, error) {
	if cfg.Proc == "" {
		cfg.Proc = host.DefaultProc
	}
	k := &Kernel{
		cfg: cfg, log: cfg.Log, unwatched: make(chan error, 1), looks: newLooks(cfg.Log),
		services: service.New(cfg.NodeName),
	}
	if !host.InMemory(cfg.RunDir) {
		// A write must wait for its undo record. On a busy disk that was measured to take up to a second.
		k.log.Warn("the run directory is on a disk; on a tmpfs, as /run is, repairs would not wait for it", "dir", cfg.RunDir)
	}
	var err error
	if k.mount, err = host.FindMount(cfg.CgroupRoot); err != nil {
		return nil, err
	}
	undo, err := acthost.OpenUndo(filepath.Join(cfg.RunDir, UndoFile))
	if undo == nil {
		return nil, err
	}
	k.log.Report("undo", err)
	if k.files, err = acthost.New(k.mount.Version, k.mount.OfKnob, undo); err != nil {
		return nil, err
	}
	if foreign := k.files.Foreign(); len(foreign) > 0 {
		k.log.Warn("a newer version of Waterline wrote files that this one does not know; restore them with that version",
			"files", foreign)
	}
	if k.mount.Version == cgroup.V2 && k.mount.Memory != "" {
		if k.reclaimer, err = acthost.NewReclaimer(k.mount.Memory, reclaimTimeout); err != nil {
			return nil, errors.Join(err, k.files.Close())
		}
	}
	return k, nil
}

// Start runs what works beside the loop until the context ends.
func (k *Kernel) Start(ctx context.Context, beside *sync.WaitGroup) {
	beside.Go(func() { k.looks.run(ctx) })
	beside.Go(func() { k.services.Run(ctx) })
	if k.reclaimer != nil {
		beside.Go(func() { k.reclaimer.Run(ctx) })
	}
	k.watch = func() {
		watcher, err := host.NewWatcher(k.mount.Version)
		if k.noWatcher = err; err != nil {
			return
		}
		k.watcher = watcher
		beside.Go(func() {
			if err := watcher.Run(ctx); err != nil {
				k.unwatched <- err
			}
		})
	}
	k.watch()
}

// Close closes all files, once the loop has ended.
func (k *Kernel) Close() error {
	if k.tree != nil {
		k.tree.Close()
		k.meter.Close()
	}
	return k.files.Close()
}

// V2 reports whether the cgroups are of version 2.
func (k *Kernel) V2() bool { return k.mount.Version == cgroup.V2 }

// Found reports whether the kubelet's cgroups were found.
func (k *Kernel) Found() bool { return k.tree != nil }

// Find searches the kubelet's cgroups. The error is the reason why there are none.
func (k *Kernel) Find() error {
	layout, err := k.layout()
	k.log.Report("cgroups", err)
	if err != nil {
		return err
	}
	k.log.Info("found the pods", "cgroup", k.mount.Version.String(), "driver", layout.Driver.String(), "kubepods",
		layout.Root)
	k.isolated, err = host.IsolatedCPUs(k.cfg.Sys)
	k.log.Report("topology", err)
	k.tree = host.NewTree(k.mount, layout, k.watcher)
	k.meter = host.NewMeter(k.mount, layout, k.cfg.Proc)
	k.sampler = host.NewWaits(k.mount, layout, k.cfg.Proc)
	k.changed = true
	return nil
}

func (k *Kernel) layout() (cgroup.Layout, error) {
	if k.cfg.Kubepods == "" {
		return host.FindKubepods(k.mount, k.cfg.SelfUID)
	}
	layout, ok := cgroup.ParseLayout(k.cfg.Kubepods)
	if !ok {
		return cgroup.Layout{},
			fmt.Errorf("--kubepods %q: its last part must be kubepods or end in kubepods.slice", k.cfg.Kubepods)
	}
	return layout, nil
}

// Changed reports whether anything that [Kernel.Observe] returns may have changed since the last [Kernel.Apply].
func (k *Kernel) Changed() bool { return k.changed }

// Wake delivers a value when another writer may have changed a file or a directory, for [Kernel.Update].
func (k *Kernel) Wake() <-chan struct{} {
	if k.watcher == nil {
		return nil
	}
	return k.watcher.Wake()
}

// Unwatched delivers the reason why the watcher ended, for [Kernel.Poll].
func (k *Kernel) Unwatched() <-chan error { return k.unwatched }

// Poll works without a watcher from now on, until an audit makes another one.
func (k *Kernel) Poll(why error) {
	k.log.Report("watch", why)
	k.watcher, k.noWatcher = nil, why
	if k.tree != nil {
		k.tree.Watch(nil)
	}
}

// Update reads what the watcher noticed since the last call. An audit compares all files of the plan with the kernel
// instead, and takes place also if the watcher missed changes. Update reports whether directories came or went, and
// whether it audited. podsChanged says that these pods differ from those of the last call.
func (k *Kernel) Update(pods []*model.Pod, podsChanged, audit bool, plan *model.Plan) (dirs, audited bool) {
	if k.watcher != nil {
		k.watcher.Take(&k.changes)
	}
	dirs, audit = k.changes.Tree, audit || k.changes.Overflow
	if audit {
		k.audit(plan.Settings)
	}
	if podsChanged || audit || dirs {
		k.Scan()
		changed, err := k.tree.FindOutside(pods)
		k.log.Report("containers", err)
		k.changed = k.changed || changed
	}
	if !audit {
		k.checkChanges()
	}
	return dirs, audit
}

// checkChanges reads the files that the last changes name.
func (k *Kernel) checkChanges() {
	for name := range k.changes.Files {
		k.changed = k.files.Check(name) || k.changed
		if name.Knob == model.Cpuset && name.Dir == k.tree.Model().Guaranteed {
			k.Scan() // the CPUs on which pods may run at all
		}
	}
}

// audit compares all files of a plan with the kernel, and makes a watcher where there is none.
func (k *Kernel) audit(settings []model.Setting) {
	if k.watcher == nil {
		if k.watch(); k.watcher != nil {
			k.tree.Watch(k.watcher)
		}
	}
	k.tree.WatchSettings(settings)
	k.changed = k.files.CheckAll() || k.changed
	if k.observed.MemoryQoS {
		k.changed = k.tree.DetectMemoryQoS() || k.changed
	}
}

// Watched reports whether every file is watched. If not, files must be audited each second.
func (k *Kernel) Watched() bool { return k.tree != nil && k.tree.Unwatched() == nil }

// ReadOnly reports whether the cgroup file system is mounted read-only.
func (k *Kernel) ReadOnly() bool { return k.tree.Model().ReadOnly }

// Scan lists the cgroups, and reports whether they changed.
func (k *Kernel) Scan() bool {
	changed, err := k.tree.Scan(k.follows)
	listed, listErr := k.tree.ReadLists(func(uid string) bool { return model.FindDetail(k.observed.Pods, uid).CPUs })
	k.log.Report("cgroups", errors.Join(err, listErr))
	k.changed = k.changed || changed || listed
	for _, dir := range k.tree.Recreated() {
		k.changed = k.files.CheckDir(dir) || k.changed
	}
	blind := k.tree.Unwatched()
	switch {
	case k.watcher == nil:
		blind = k.noWatcher
	case errors.Is(blind, fs.ErrNotExist):
		blind = nil // the directory went between listing and watching, which is no failure
	}
	k.log.Report("watch", blind)
	return changed || listed
}

// Apply writes the files of a plan and starts its reclaim. It returns what other writers overwrote, and the kernel's
// refusals, which the next round must know before it tries again.
func (k *Kernel) Apply(plan *model.Plan) []model.Incident {
	k.tree.WatchSettings(plan.Settings)
	incidents, err := k.files.Apply(plan)
	k.log.Report("apply", err)
	k.changed = slices.ContainsFunc(incidents, func(i model.Incident) bool { return i.Kind != model.Overwritten })
	if plan.Reclaim != nil && k.reclaimer != nil {
		k.claiming = true
		k.reclaimer.Ask(*plan.Reclaim)
	}
	k.looks.compare(k.sampler, &plan.Observe)
	k.services.Need(plan.Observe.Services)
	return incidents
}

// Owned returns the files on the undo record.
func (k *Kernel) Owned() []model.Owned { return k.files.Owned() }

// Restored reports whether nothing is left to restore, also not by a newer version of Waterline.
func (k *Kernel) Restored() bool { return len(k.Owned()) == 0 && len(k.files.Foreign()) == 0 }

// Status returns the plan's files in matching directories.
func (k *Kernel) Status(match func(dir string) bool) []model.FileStatus {
	return k.files.Status(match)
}

// Stats counts the writes so far.
func (k *Kernel) Stats() acthost.Stats { return k.files.Stats() }

// Reclaimed delivers the result of a reclaim, for [Kernel.TakeReclaimed].
func (k *Kernel) Reclaimed() <-chan model.Reclaimed {
	if k.reclaimer == nil {
		return nil
	}
	return k.reclaimer.Done()
}

// TakeReclaimed keeps the result of a reclaim for the next round.
func (k *Kernel) TakeReclaimed(r model.Reclaimed) {
	k.claiming, k.reclaimed, k.changed = false, &r, true
}

// Waited delivers a value when an online pod waited longer than its mark says, for [Kernel.TakeWaited].
func (k *Kernel) Waited() <-chan struct{} { return k.looks.waited }

// Sampled counts the online pods whose waits are sampled; nil: none are.
func (k *Kernel) Sampled() *model.SampledPods { return k.looks.count() }

// TakeWaited reports whether a pod still waited longer than its mark says: a round may have come since.
func (k *Kernel) TakeWaited() bool {
	k.waits = k.looks.take(k.waits[:0])
	long := exceeded(k.observed.Waits, k.waits)
	k.changed = k.changed || long
	return long
}
