// Package host observes the node it runs on: where its cgroup hierarchy is, which pods have a cgroup in it, and when
// somebody else makes, removes or writes there. It reads and watches; it never writes.
package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// DefaultRoot is where the cgroup file system is mounted on a host.
const DefaultRoot = "/sys/fs/cgroup"

// The errors that tell apart why no pods can be found.
var (
	ErrNoController = errors.New("no CPU controller")
	ErrNoKubepods   = errors.New("no kubepods cgroup")
	ErrAmbiguous    = errors.New("more than one kubepods cgroup")
)

// Mount is the hierarchy that the CPU controller is bound to, and those of the other controllers, in which every group has a
// directory of the same name. On cgroup v2 they are one. A path of "" means that this node has no such controller.
type Mount struct {
	Version cgroup.Version
	Path    string // absolute, as the others
	Cpusets string
	Cpuacct string // what counts the CPU time; v2 does so without a controller
	Memory  string
}

// Of returns the hierarchy that a knob stands in, "" if there is none.
func (m Mount) Of(k model.Knob) string {
	switch k {
	case model.Cpuset:
		return m.Cpusets
	case model.MemoryMax:
		return m.Memory
	case model.Freeze:
		if m.Version == cgroup.V1 {
			return ""
		}
	case model.MemoryMin, model.MemoryLow, model.MemoryHigh:
		if m.Version == cgroup.V1 {
			return ""
		}
		return m.Memory
	}
	return m.Path
}

// OfStat returns the hierarchy that a file of the kernel's stands in, "" if there is none.
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

// FindMount finds the CPU controller below the directory where the cgroup file system is mounted, as [DefaultRoot]. On a
// hybrid host that is the v1 hierarchy, because the v2 one has no controllers there. The error is [ErrNoController] if
// there is none.
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
			Version: cgroup.V1, Path: path, Cpusets: v1("cpuset"), Cpuacct: v1("cpuacct", "cpu,cpuacct", "cpuacct,cpu"), Memory: v1("memory"),
		}, nil
	}
	return Mount{}, fmt.Errorf("%w at %s: neither cgroup v2 nor a v1 cpu hierarchy is mounted there", ErrNoController, root)
}

// InMemory reports whether a directory is on a file system that is in memory.
func InMemory(dir string) bool {
	return isType(dir, unix.TMPFS_MAGIC) || isType(dir, unix.RAMFS_MAGIC)
}

func isType(path string, magic int64) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && st.Type == magic
}

// FindKubepods finds the directory that a kubelet keeps its pods in. Where there are several, as on a host that also runs
// nodes in containers, it is the one with the pod of this UID in it. The error is [ErrNoKubepods] or [ErrAmbiguous].
func FindKubepods(m Mount, podUID string) (cgroup.Layout, error) {
	const deepest, most = 5, 20000 // kind's node in a container in systemd stands four deep
	var found []cgroup.Layout
	visited := 0
	err := filepath.WalkDir(m.Path, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return fs.SkipDir // it went away while we looked
		}
		if !d.IsDir() {
			return nil
		}
		if visited++; visited > most {
			return fs.SkipAll
		}
		rel := strings.TrimPrefix(strings.TrimPrefix(path, m.Path), "/")
		if layout, ok := cgroup.ParseLayout(rel); ok {
			found = append(found, layout)
			return fs.SkipDir
		}
		if strings.Count(rel, "/") >= deepest-1 && rel != "" {
			return fs.SkipDir
		}
		return nil
	})
	if err != nil {
		return cgroup.Layout{}, fmt.Errorf("looking for kubepods below %s: %w", m.Path, err)
	}
	if len(found) > 1 && podUID != "" {
		found = slices.DeleteFunc(found, func(l cgroup.Layout) bool { return !hasPod(m, l, podUID) })
	}
	switch len(found) {
	case 0:
		return cgroup.Layout{}, fmt.Errorf("%w below %s: the kubelet has not started, or runs with cgroupsPerQOS: false", ErrNoKubepods, m.Path)
	case 1:
		return found[0], nil
	}
	roots := make([]string, len(found))
	for i, l := range found {
		roots[i] = l.Root
	}
	return cgroup.Layout{}, fmt.Errorf("%w below %s: %s; choose one with --kubepods", ErrAmbiguous, m.Path, strings.Join(roots, ", "))
}

// hasPod reports whether the pod has its cgroup in this layout, in whatever class.
func hasPod(m Mount, l cgroup.Layout, uid string) bool {
	for q := model.Guaranteed; q <= model.BestEffort && cgroup.ValidUID(uid); q++ {
		if _, err := os.Lstat(filepath.Join(m.Path, l.Pod(q, uid))); err == nil {
			return true
		}
	}
	return false
}
