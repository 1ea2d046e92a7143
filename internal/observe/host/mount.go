package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// DefaultRoot is the mount point of the cgroup file system on a host.
const DefaultRoot = "/sys/fs/cgroup"

// Reasons why no pods can be found.
var (
	ErrNoController = errors.New("no CPU controller")
	ErrNoKubepods   = errors.New("no kubepods cgroup")
	ErrAmbiguous    = errors.New("more than one kubepods cgroup")
)

// Mount holds the mount points of the cgroup hierarchies: the one of the CPU controller, and those of the other
// controllers. A group has the same relative path in each. On cgroup v2 all are the same hierarchy. An empty
// path means that this node does not have the controller.
type Mount struct {
	Version cgroup.Version
	Path    string // of the CPU controller; absolute, as are the others
	Cpusets string
	Cpuacct string // of the hierarchy that counts CPU time; on v2 that needs no controller
	Memory  string
}

// OfKnob returns the mount point of a knob's hierarchy, "" if this node has none.
func (m Mount) OfKnob(k model.Knob) string {
	switch k {
	case model.Cpuset:
		return m.Cpusets
	case model.MemoryMax:
		return m.Memory
	case model.MemoryMin, model.MemoryLow, model.MemoryHigh:
		if m.Version == cgroup.V1 {
			return ""
		}
		return m.Memory
	}
	return m.Path
}

// OfStat returns the mount point of the hierarchy of a statistics file, "" if this node has none.
func (m Mount) OfStat(s cgroup.Stat) string {
	switch {
	case cgroup.StatFile(m.Version, s) == "":
		return ""
	case s == cgroup.CPUUsage:
		return m.Cpuacct
	case s == cgroup.MemoryUsage || s == cgroup.MemoryDetails:
		return m.Memory
	}
	return m.Path
}

// FindMount finds the hierarchy of the CPU controller below the mount point of the cgroup file system, such as
// [DefaultRoot]. On a hybrid host it is the v1 hierarchy, because the v2 hierarchy there has no controllers.
// The error is [ErrNoController] if there is none.
func FindMount(root string) (Mount, error) {
	if isType(root, unix.CGROUP2_SUPER_MAGIC) {
		controllers, err := os.ReadFile(filepath.Join(root, "cgroup.controllers"))
		if err != nil {
			return Mount{}, fmt.Errorf("reading the controllers of %s: %w", root, err)
		}
		if names := strings.Fields(string(controllers)); slices.Contains(names, "cpu") {
			m := Mount{Version: cgroup.V2, Path: root, Cpuacct: root}
			if slices.Contains(names, "cpuset") {
				m.Cpusets = root
			}
			if slices.Contains(names, "memory") {
				m.Memory = root
			}
			return m, nil
		}
		return Mount{}, fmt.Errorf("%w in %s/cgroup.controllers, which reads %q", ErrNoController, root, controllers)
	}
	v1 := func(names ...string) string {
		for _, name := range names {
			if dir := filepath.Join(root, name); isType(dir, unix.CGROUP_SUPER_MAGIC) {
				return dir
			}
		}
		return ""
	}
	if path := v1("cpu", "cpu,cpuacct", "cpuacct,cpu"); path != "" {
		return Mount{
			Version: cgroup.V1, Path: path, Cpusets: v1("cpuset"),
			Cpuacct: v1("cpuacct", "cpu,cpuacct", "cpuacct,cpu"), Memory: v1("memory"),
		}, nil
	}
	return Mount{}, fmt.Errorf("%w at %s: neither cgroup v2 nor a v1 cpu hierarchy is mounted there",
		ErrNoController, root)
}

// InMemory reports whether a directory is on tmpfs or ramfs.
func InMemory(dir string) bool {
	return isType(dir, unix.TMPFS_MAGIC) || isType(dir, unix.RAMFS_MAGIC)
}

func isType(path string, magic int64) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && st.Type == magic
}

// FindKubepods finds the kubelet's directory of pods. Several exist on a host that also runs nodes in
// containers; the result is then the one that contains the pod with this UID. The error is [ErrNoKubepods] or
// [ErrAmbiguous].
func FindKubepods(m Mount, podUID string) (cgroup.Layout, error) {
	var found []cgroup.Layout
	err := walkGroups(m, func(dir string) bool {
		layout, ok := cgroup.ParseLayout(dir)
		if ok {
			found = append(found, layout)
		}
		return !ok
	})
	if err != nil {
		return cgroup.Layout{}, fmt.Errorf("looking for kubepods below %s: %w", m.Path, err)
	}
	if len(found) > 1 && podUID != "" {
		found = slices.DeleteFunc(found, func(l cgroup.Layout) bool { return !hasPod(m, l, podUID) })
	}
	switch len(found) {
	case 0:
		return cgroup.Layout{}, fmt.Errorf("%w below %s: the kubelet has not started, or runs with cgroupsPerQOS: false",
			ErrNoKubepods, m.Path)
	case 1:
		return found[0], nil
	}
	roots := make([]string, len(found))
	for i, l := range found {
		roots[i] = l.Root
	}
	return cgroup.Layout{}, fmt.Errorf("%w below %s: %s; choose one with --kubepods",
		ErrAmbiguous, m.Path, strings.Join(roots, ", "))
}

// hasPod reports whether the pod has a cgroup in this layout, in any QoS class.
func hasPod(m Mount, l cgroup.Layout, uid string) bool {
	for q := model.Guaranteed; q <= model.BestEffort && cgroup.ValidUID(uid); q++ {
		if _, err := os.Lstat(filepath.Join(m.Path, l.Pod(q, uid))); err == nil {
			return true
		}
	}
	return false
}
