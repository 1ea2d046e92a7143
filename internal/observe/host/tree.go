package host

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// Tree follows the directories that a kubelet makes for its pods. What it lists is the kernel's word: no string from the
// API ever becomes part of a path.
//
// It keeps the directories open that it looks at again and again, so that a scan that finds nothing new allocates
// nothing. It is not safe for concurrent use.
type Tree struct {
	mount     Mount
	layout    cgroup.Layout
	watcher   *Watcher // nil: nothing is watched
	classes   [3]*dirLister
	pods      map[string]*podDir // by UID
	buf       []byte
	model     model.Tree
	probed    bool           // it is known what the kernel has
	identity  bool           // among it group identities, which it may be told by proc not to use
	proc      string         // where the proc file system is mounted
	cpus      *os.File       // the CPUs that pods may run on at all; nil: not open
	effective cgroup.Raw     // what it read
	blind     error          // why a directory could not be watched
	covered   map[Group]bool // what Cover watches; false: the kernel had no watch left
	anew      []string       // directories that the last scan found to be others than before
}

// podDir is the cgroup of a pod.
type podDir struct {
	group  model.PodGroup
	seen   bool       // in the scan going on
	lister *dirLister // open only while the pod is followed
	idle   int        // descriptor of cpu.idle; -1: not open
}

// NewTree follows the pods of one kubelet. A nil watcher means that changes are only found by scanning.
func NewTree(m Mount, l cgroup.Layout, w *Watcher) *Tree {
	t := &Tree{mount: m, layout: l, watcher: w, pods: map[string]*podDir{}, covered: map[Group]bool{}, buf: make([]byte, 32<<10), proc: DefaultProc}
	for q := range t.classes {
		t.classes[q] = &dirLister{path: filepath.Join(m.Path, l.Class(model.QoSClass(q))), fd: -1}
	}
	t.model = model.Tree{
		Guaranteed: l.Class(model.Guaranteed),
		Burstable:  l.Class(model.Burstable),
		BestEffort: l.Class(model.BestEffort),
		V2:         m.Version == cgroup.V2,
		NoCpusets:  m.Cpusets == "",
		Pods:       map[string]model.PodGroup{},
	}
	return t
}

// Model returns the tree as it was last scanned. The value is never changed afterwards.
func (t *Tree) Model() model.Tree { return t.model }

// Blind returns why changes may go unnoticed until the next scan: nothing is watched, or not everything could be. Nil
// means that they do not.
func (t *Tree) Blind() error {
	if t.watcher == nil {
		return ErrNoWatches
	}
	if t.blind != nil {
		return t.blind
	}
	for _, watched := range t.covered {
		if !watched {
			return ErrNoWatches
		}
	}
	return nil
}

// Watch watches with another watcher from the next scan on, or with none if it is nil.
func (t *Tree) Watch(w *Watcher) {
	t.watcher = w
	clear(t.covered)
	for _, d := range t.classes {
		d.watched = false
	}
	for _, p := range t.pods {
		if p.lister != nil {
			p.lister.watched = false
		}
	}
}

// Anew returns the directories that were, at the last scan, no longer the same as at the scan before: removed and made
// again under the same name, so that nothing known of the files in them holds any more.
func (t *Tree) Anew() []string { return t.anew }

// Close gives back every descriptor and watch.
func (t *Tree) Close() {
	for q, d := range t.classes {
		d.close()
		if d.watched {
			t.watcher.Remove(t.group(t.model.Class(model.QoSClass(q))))
			d.watched = false
		}
	}
	for uid, p := range t.pods {
		t.forget(p)
		delete(t.pods, uid)
	}
	t.Cover(nil)
	if t.cpus != nil {
		_ = t.cpus.Close()
		t.cpus = nil
	}
}

// Scan lists the pods' directories, and for the pods that follow selects also the containers in them and whether they
// are idle. A followed pod is watched before it is listed, so that nothing written after the scan goes unseen. It reports
// whether anything is different from the last scan.
func (t *Tree) Scan(follow func(uid string) bool) (changed bool, err error) {
	t.blind, t.anew = nil, t.anew[:0]
	dirsChanged := false
	for q, lister := range t.classes {
		c, listErr := t.list(lister, t.model.Class(model.QoSClass(q)))
		err = errors.Join(err, listErr)
		dirsChanged = dirsChanged || c
	}
	if dirsChanged {
		t.update()
		changed = true
	}
	changed = t.probe() || changed
	cpusChanged, cpusErr := t.readCPUs()
	changed, err = changed || cpusChanged, errors.Join(err, cpusErr)
	if ro := t.classes[model.Guaranteed].readOnly(); ro != t.model.ReadOnly {
		t.model.ReadOnly, changed = ro, true
	}
	for uid, p := range t.pods {
		c, podErr := t.inspect(p, follow(uid))
		changed = changed || c
		err = errors.Join(err, podErr)
	}
	if t.blind != nil && !errors.Is(t.blind, ErrNoWatches) {
		err = errors.Join(err, t.classes[model.Guaranteed].moved())
	}
	if changed {
		pods := make(map[string]model.PodGroup, len(t.pods))
		for uid, p := range t.pods {
			pods[uid] = p.group
		}
		t.model.Pods = pods
	}
	return changed, err
}

// probe finds out once what the kernel has, as soon as there are groups with a quota, and reports whether it just found that
// something is missing. Only group identities can be switched on and off while the kernel runs.
func (t *Tree) probe() bool {
	if t.probed {
		return t.identity && t.switched()
	}
	t.beware()
	has := func(name string) bool {
		_, err := os.Lstat(filepath.Join(t.mount.Path, t.layout.Root, name))
		return err == nil
	}
	if t.probed = has(cgroup.FileName(t.mount.Version, model.Quota)); !t.probed {
		return false
	}
	t.model.NoBurst = !has(cgroup.FileName(t.mount.Version, model.Burst))
	t.model.NoIdle = !has(cgroup.FileName(t.mount.Version, model.Idle))
	t.model.NoPressure = !t.hasPressure()
	t.probeIdentity(has(cgroup.FileName(t.mount.Version, model.Identity)))
	t.model.NoReclaim = !has(cgroup.ReclaimFile)
	if t.model.V2 {
		t.model.NoProtection = noProtection(t.proc, has(cgroup.FileName(t.mount.Version, model.MemoryMin)))
	}
	return t.model.NoBurst || t.model.NoIdle || t.model.NoPressure || t.model.NoIdentity != "" || t.model.NoProtection != "" || t.model.NoReclaim
}

// hasPressure reports whether groups tell of their pressure. Where the kernel was started without it, older ones have the
// files all the same, and refuse to open or to read them (EOPNOTSUPP).
func (t *Tree) hasPressure() bool {
	name := cgroup.StatFile(t.mount.Version, cgroup.CPUStall)
	if name == "" {
		return false
	}
	f, err := os.Open(filepath.Join(t.mount.Path, t.layout.Root, name))
	if err != nil {
		return false
	}
	defer f.Close()
	_, err = f.Read(t.buf)
	return err == nil
}

// readCPUs reads on which CPUs pods may run at all: those that are online and that no group above forbids.
func (t *Tree) readCPUs() (changed bool, err error) {
	if t.mount.Cpusets == "" {
		return false, nil
	}
	if t.cpus == nil {
		path := filepath.Join(t.mount.Cpusets, t.layout.Root, cgroup.EffectiveFile(t.mount.Version))
		if t.cpus, err = os.Open(path); err != nil {
			t.cpus = nil
			if errors.Is(err, fs.ErrNotExist) {
				return false, nil // the kubelet is yet to make it, or the controller is not enabled there
			}
			return false, fmt.Errorf("opening the CPUs of all pods: %w", err)
		}
	}
	n, err := unix.Pread(int(t.cpus.Fd()), t.buf, 0)
	if err != nil {
		_ = t.cpus.Close()
		t.cpus = nil
		if errors.Is(err, unix.ENODEV) {
			return false, nil // the group was made anew
		}
		return false, fmt.Errorf("reading the CPUs of all pods: %w", err)
	}
	raw, err := cgroup.Parse(t.mount.Version, model.Cpuset, t.buf[:n], t.effective)
	if err != nil || raw == t.effective || raw.List == model.Inherited {
		return false, err
	}
	t.effective = raw
	t.model.CPUs, err = model.ParseCPUs(raw.List)
	return true, err
}

// Cover watches the directories that hold files of a plan and that [Tree.Scan] does not watch: those of containers and, on
// v1, everything in the hierarchies of other controllers than the CPU's. It must run before those files are read, or what is written in
// between goes unseen. What could not be watched last time is tried again.
func (t *Tree) Cover(settings []model.Setting) {
	if t.watcher == nil {
		return
	}
	planned := func(g Group) bool {
		i, _ := slices.BinarySearchFunc(settings, g.Dir, func(s model.Setting, dir string) int { return strings.Compare(s.Dir, dir) })
		for ; i < len(settings) && settings[i].Dir == g.Dir; i++ {
			if t.groupOf(&settings[i]) == g {
				return true
			}
		}
		return false
	}
	for g := range t.covered {
		if !planned(g) {
			t.watcher.Remove(g)
			delete(t.covered, g)
		}
	}
	for i := range settings {
		g := t.groupOf(&settings[i])
		if g.Mount != "" && (g.Mount != t.mount.Path || t.inPod(g.Dir)) && !t.watcher.Watches(g) {
			t.covered[g] = !errors.Is(t.watcher.Add(g), ErrNoWatches)
		}
	}
}

// groupOf returns the cgroup that a setting's file is in. Its mount is "" if this node has no such controller.
func (t *Tree) groupOf(s *model.Setting) Group { return Group{Mount: t.mount.Of(s.Knob), Dir: s.Dir} }

// group returns the cgroup of a directory in the hierarchy of the CPU controller.
func (t *Tree) group(dir string) Group { return Group{Mount: t.mount.Path, Dir: dir} }

// inPod reports whether a directory is one in a pod's directory.
func (t *Tree) inPod(dir string) bool {
	above := dir[:max(strings.LastIndexByte(dir, '/'), 0)]
	for q := range t.classes {
		if class := t.model.Class(model.QoSClass(q)); above == class || dir == class {
			return false
		}
	}
	return true
}

// update brings the set of pods to what the class directories list.
func (t *Tree) update() {
	for _, p := range t.pods {
		p.seen = false
	}
	for q, lister := range t.classes {
		class := t.model.Class(model.QoSClass(q))
		for name, inode := range lister.entries {
			uid, ok := t.layout.ParsePod(name)
			if !ok {
				continue
			}
			p := t.pods[uid]
			if p != nil && p.group.Inode != inode {
				t.anew = append(t.anew, p.group.Dir)
				t.forget(p)
				p = nil
			}
			if p == nil {
				p = &podDir{group: model.PodGroup{Dir: class + "/" + name, Inode: inode}, idle: -1}
				t.pods[uid] = p
			}
			p.seen = true
		}
	}
	maps.DeleteFunc(t.pods, func(_ string, p *podDir) bool {
		if !p.seen {
			t.forget(p)
		}
		return !p.seen
	})
}

// inspect looks into a pod's directory, or stops doing so.
func (t *Tree) inspect(p *podDir, follow bool) (changed bool, err error) {
	if !follow {
		if p.lister != nil {
			t.forget(p)
		}
		return false, nil
	}
	if p.lister == nil {
		dir := filepath.Join(t.mount.Path, p.group.Dir)
		p.lister = &dirLister{path: dir, fd: -1}
		if fd, openErr := unix.Open(path.Join(dir, cgroup.FileName(t.mount.Version, model.Idle)), unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0); openErr == nil {
			p.idle = fd // absent before 5.15
		}
	}
	if changed, err = t.list(p.lister, p.group.Dir); err != nil {
		return false, err
	}
	if changed {
		p.group.Containers = slices.Sorted(maps.Keys(p.lister.entries))
		p.group.Join()
	}
	if idle := p.readIdle(t.buf); idle != p.group.Idle {
		p.group.Idle, changed = idle, true
	}
	return changed, nil
}

func (p *podDir) readIdle(buf []byte) bool {
	if p.idle < 0 {
		return false
	}
	n, err := unix.Pread(p.idle, buf, 0)
	return err == nil && n > 0 && buf[0] == '1'
}

func (t *Tree) forget(p *podDir) {
	if p.lister == nil {
		return
	}
	p.lister.close()
	if p.lister.watched {
		t.watcher.Remove(t.group(p.group.Dir))
	}
	p.lister = nil
	if p.idle >= 0 {
		_ = unix.Close(p.idle)
		p.idle = -1
	}
}

// list watches and lists a directory, in this order. When the directory turns out to be another one than last time, the
// watch is set again. The old one must be removed: the kernel takes it away only together with the inode, which the watch
// itself can keep (seen on 6.18: after 1,000 pods had come and gone, 120 watches were left).
func (t *Tree) list(d *dirLister, dir string) (changed bool, err error) {
	for range 2 {
		if !d.watched && t.watcher != nil {
			watchErr := t.watcher.Add(t.group(dir))
			d.watched = watchErr == nil
			if errors.Is(watchErr, ErrNoWatches) {
				watchErr = ErrNoWatches // the same words, whichever directory comes first
			}
			if t.blind == nil {
				t.blind = watchErr // or the directory is still to come, or already gone
			}
		}
		changed, err = d.list(t.buf)
		if !errors.Is(err, errStale) {
			return changed, err
		}
		if d.watched {
			t.watcher.Remove(t.group(dir))
			d.watched = false
		}
		t.anew = append(t.anew, dir)
	}
	return changed, err
}
