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

// Tree follows the directories that a kubelet makes for its pods. It takes their names from the kernel only: no
// string from the API becomes part of a path.
//
// It keeps open the directories that it lists repeatedly, so a scan without changes allocates nothing. It is
// not safe for concurrent use.
type Tree struct {
	mount     Mount
	layout    cgroup.Layout
	watcher   *Watcher // nil: nothing is watched
	classes   [3]*dirLister
	pods      map[string]*podDir // by UID
	buf       []byte
	model     model.Tree
	probed    bool       // the features of the kernel are known
	identity  bool       // the kernel has group identities; a sysctl may turn them off
	proc      string     // mount point of procfs
	cpus      *os.File   // the effective CPUs of all pods; nil: not open
	effective cgroup.Raw // last value of cpus
	unwatched error      // why a directory could not be watched
	recreated []string   // directories that the last scan found removed and made again

	containers map[string]*place // of pods, by ID: those that FindOutside has looked for

	// settingDirs are the groups that WatchSettings watches; false: the kernel had no watch left.
	settingDirs map[Group]bool
}

// podDir is the cgroup directory of a pod.
type podDir struct {
	group  model.PodGroup
	seen   bool       // found by the current scan
	lister *dirLister // nil while the pod is not followed
	idle   int        // descriptor of cpu.idle; -1: not open
}

// NewTree follows the pods of one kubelet. With a nil watcher only scans find changes.
func NewTree(m Mount, l cgroup.Layout, w *Watcher) *Tree {
	t := &Tree{
		mount: m, layout: l, watcher: w, pods: map[string]*podDir{}, settingDirs: map[Group]bool{},
		buf: make([]byte, 32<<10), proc: DefaultProc, containers: map[string]*place{},
	}
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

// Model returns the tree of the last scan. The value is never changed afterwards.
func (t *Tree) Model() model.Tree { return t.model }

// Unwatched returns why changes may go unnoticed until the next scan: there is no watcher, or a directory could
// not be watched. It returns nil if every directory is watched.
func (t *Tree) Unwatched() error {
	if t.watcher == nil {
		return ErrNoWatches
	}
	if t.unwatched != nil {
		return t.unwatched
	}
	for _, watched := range t.settingDirs {
		if !watched {
			return ErrNoWatches
		}
	}
	return nil
}

// Watch replaces the watcher from the next scan on. Nil means no watcher.
func (t *Tree) Watch(w *Watcher) {
	t.watcher = w
	clear(t.settingDirs)
	for _, d := range t.classes {
		d.watched = false
	}
	for _, p := range t.pods {
		if p.lister != nil {
			p.lister.watched = false
		}
	}
}

// Recreated returns the directories that were removed and made again under the same name between the last two
// scans. Nothing known about the files in them is valid any more.
func (t *Tree) Recreated() []string { return t.recreated }

// Close closes every descriptor and removes every watch.
func (t *Tree) Close() {
	for q, d := range t.classes {
		d.close()
		if d.watched {
			t.watcher.Remove(t.group(t.model.Class(model.QoSClass(q))))
			d.watched = false
		}
	}
	for uid, p := range t.pods {
		t.closePod(p)
		delete(t.pods, uid)
	}
	t.WatchSettings(nil)
	if t.cpus != nil {
		_ = t.cpus.Close()
		t.cpus = nil
	}
}

// Scan lists the directories of the pods. For the pods that follow selects it also lists the containers and
// reads cpu.idle. It watches a followed pod before it lists it, so that no later write is missed. It reports
// whether anything changed since the last scan.
func (t *Tree) Scan(follow func(uid string) bool) (changed bool, err error) {
	t.unwatched, t.recreated = nil, t.recreated[:0]
	dirsChanged := false
	for q, lister := range t.classes {
		c, listErr := t.list(lister, t.model.Class(model.QoSClass(q)))
		err = errors.Join(err, listErr)
		dirsChanged = dirsChanged || c
	}
	if dirsChanged {
		t.updatePods()
		changed = true
	}
	changed = t.probe() || changed
	cpusChanged, cpusErr := t.readCPUs()
	changed, err = changed || cpusChanged, errors.Join(err, cpusErr)
	if ro := t.classes[model.Guaranteed].readOnly(); ro != t.model.ReadOnly {
		t.model.ReadOnly, changed = ro, true
	}
	for uid, p := range t.pods {
		c, podErr := t.scanPod(p, follow(uid))
		changed = changed || c
		err = errors.Join(err, podErr)
	}
	if t.unwatched != nil && !errors.Is(t.unwatched, ErrNoWatches) {
		err = errors.Join(err, t.classes[model.Guaranteed].checkPath())
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

// probe finds out once which features the kernel has, as soon as there are groups with a quota. It reports
// whether it just found a missing feature. Group identities are checked every time, because a sysctl switches
// them.
func (t *Tree) probe() bool {
	if t.probed {
		return t.identity && t.readIdentitySwitch()
	}
	t.excludePanickingKernel()
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
	return t.model.NoBurst || t.model.NoIdle || t.model.NoPressure || t.model.NoReclaim ||
		t.model.NoIdentity != "" || t.model.NoProtection != ""
}

// hasPressure reports whether groups have pressure (PSI). On a kernel booted without it, older versions have
// the files all the same, and refuse to open or to read them (EOPNOTSUPP).
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

// readCPUs reads the CPUs on which pods can run at all: those that are online and that every group above
// allows.
func (t *Tree) readCPUs() (changed bool, err error) {
	if t.mount.Cpusets == "" {
		return false, nil
	}
	if t.cpus == nil {
		path := filepath.Join(t.mount.Cpusets, t.layout.Root, cgroup.EffectiveFile(t.mount.Version))
		if t.cpus, err = os.Open(path); err != nil {
			t.cpus = nil
			if errors.Is(err, fs.ErrNotExist) {
				return false, nil // the kubelet has not made the group yet, or the controller is not enabled there
			}
			return false, fmt.Errorf("opening the CPUs of all pods: %w", err)
		}
	}
	n, err := unix.Pread(int(t.cpus.Fd()), t.buf, 0)
	if err != nil {
		_ = t.cpus.Close()
		t.cpus = nil
		if errors.Is(err, unix.ENODEV) {
			return false, nil // the group was removed; the next scan opens the new one
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

// ReadLists reads the CPU lists of the containers of the pods that wanted selects. It reports whether any changed. Call
// it after [Tree.Scan], which lists the containers.
func (t *Tree) ReadLists(wanted func(uid string) bool) (changed bool, err error) {
	if t.mount.Cpusets == "" {
		return false, nil
	}
	for uid, p := range t.pods {
		var lists []model.CPUSet
		if p.lister != nil && wanted(uid) {
			lists = make([]model.CPUSet, len(p.group.Containers))
			for i := range lists {
				var readErr error
				lists[i], readErr = readList(filepath.Join(t.mount.Cpusets, p.group.Path(i), cpusetFile))
				err = errors.Join(err, readErr)
			}
		}
		if slices.Equal(lists, p.group.CPUs) {
			continue
		}
		if !changed {
			t.model.Pods, changed = maps.Clone(t.model.Pods), true
		}
		p.group.CPUs = lists
		t.model.Pods[uid] = p.group
	}
	return changed, err
}

// readList reads a list of CPUs; empty if the group was removed meanwhile.
func readList(path string) (model.CPUSet, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return model.CPUSet{}, nil
	}
	if err != nil {
		return model.CPUSet{}, fmt.Errorf("reading a container's CPUs: %w", err)
	}
	list, err := model.ParseCPUs(string(text))
	if err != nil {
		return model.CPUSet{}, fmt.Errorf("reading a container's CPUs: %s: %w", path, err)
	}
	return list, nil
}

// cpusetFile has a group's own list of CPUs, on both cgroup versions.
const cpusetFile = "cpuset.cpus"

// WatchSettings watches the directories of a plan's files that [Tree.Scan] does not watch. These are the
// directories of containers and, on v1, all directories outside the hierarchy of the CPU controller. Call it
// before these files are read, or writes in between are missed. It tries directories again that could not be
// watched the last time.
func (t *Tree) WatchSettings(settings []model.Setting) {
	if t.watcher == nil {
		return
	}
	planned := func(g Group) bool {
		i, _ := slices.BinarySearchFunc(settings, g.Dir, func(s model.Setting, dir string) int {
			return strings.Compare(s.Dir, dir)
		})
		for ; i < len(settings) && settings[i].Dir == g.Dir; i++ {
			if t.groupOf(&settings[i]) == g {
				return true
			}
		}
		return false
	}
	for g := range t.settingDirs {
		if !planned(g) {
			t.watcher.Remove(g)
			delete(t.settingDirs, g)
		}
	}
	for i := range settings {
		g := t.groupOf(&settings[i])
		if g.Mount != "" && (g.Mount != t.mount.Path || t.inPod(g.Dir)) && !t.watcher.Watches(g) {
			t.settingDirs[g] = !errors.Is(t.watcher.Add(g), ErrNoWatches)
		}
	}
}

// groupOf returns the cgroup of a setting's file. Its mount is "" if this node does not have the controller.
func (t *Tree) groupOf(s *model.Setting) Group {
	return Group{Mount: t.mount.OfKnob(s.Knob), Dir: s.Dir}
}

// group returns the cgroup of a directory in the hierarchy of the CPU controller.
func (t *Tree) group(dir string) Group { return Group{Mount: t.mount.Path, Dir: dir} }

// inPod reports whether a directory is inside the directory of a pod.
func (t *Tree) inPod(dir string) bool {
	above := dir[:max(strings.LastIndexByte(dir, '/'), 0)]
	for q := range t.classes {
		if class := t.model.Class(model.QoSClass(q)); above == class || dir == class {
			return false
		}
	}
	return true
}

// updatePods updates the set of pods from the lists of the class directories.
func (t *Tree) updatePods() {
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
				t.recreated = append(t.recreated, p.group.Dir)
				t.closePod(p)
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
			t.closePod(p)
		}
		return !p.seen
	})
}

// scanPod scans the directory of a followed pod, or closes the directory of a pod that is not followed any
// more.
func (t *Tree) scanPod(p *podDir, follow bool) (changed bool, err error) {
	if !follow {
		if p.lister != nil {
			t.closePod(p)
		}
		return false, nil
	}
	if p.lister == nil {
		dir := filepath.Join(t.mount.Path, p.group.Dir)
		p.lister = &dirLister{path: dir, fd: -1}
		idle := path.Join(dir, cgroup.FileName(t.mount.Version, model.Idle)) // absent before 5.15
		if fd, openErr := unix.Open(idle, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0); openErr == nil {
			p.idle = fd
		}
	}
	if changed, err = t.list(p.lister, p.group.Dir); err != nil {
		return false, err
	}
	if changed {
		p.group.Containers, p.group.CPUs = slices.Sorted(maps.Keys(p.lister.entries)), nil
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

func (t *Tree) closePod(p *podDir) {
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

// list watches a directory and then lists it. If the directory was made again since the last listing, list
// replaces the watch. It removes the old watch itself, because the kernel removes a watch only together with
// the inode, which the watch can keep alive (measured on 6.18: after 1,000 pods had come and gone, 120 watches
// were left).
func (t *Tree) list(d *dirLister, dir string) (changed bool, err error) {
	for range 2 {
		if !d.watched && t.watcher != nil {
			watchErr := t.watcher.Add(t.group(dir))
			d.watched = watchErr == nil
			if errors.Is(watchErr, ErrNoWatches) {
				watchErr = ErrNoWatches // the same text for every directory
			}
			if t.unwatched == nil {
				t.unwatched = watchErr // also if the directory does not exist yet, or any more
			}
		}
		changed, err = d.list(t.buf)
		if !errors.Is(err, errRemoved) {
			return changed, err
		}
		if d.watched {
			t.watcher.Remove(t.group(dir))
			d.watched = false
		}
		t.recreated = append(t.recreated, dir)
	}
	return changed, err
}
