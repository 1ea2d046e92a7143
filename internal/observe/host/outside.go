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

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// The limits of a search for cgroups: the kubepods directory of a kind node below systemd is at depth four, and a
// container that its runtime put beside it is not deeper.
const (
	searchDepth = 5
	searchDirs  = 20000
)

// walkGroups calls visit for the directories of the CPU hierarchy from the top down, up to the limits of a search. It
// does not enter a directory for which visit returns false. Directories that are removed meanwhile are left out.
func walkGroups(m Mount, visit func(dir string) bool) error {
	visited := 0
	return filepath.WalkDir(m.Path, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return fs.SkipDir // the directory was removed meanwhile
		}
		if !d.IsDir() {
			return nil
		}
		if visited++; visited > searchDirs {
			return fs.SkipAll
		}
		dir := strings.TrimPrefix(strings.TrimPrefix(path, m.Path), "/")
		if !visit(dir) || dir != "" && strings.Count(dir, "/") >= searchDepth-1 {
			return fs.SkipDir
		}
		return nil
	})
}

// Stray returns the directories outside a kubelet's directory of pods in which a container runtime has put containers
// of pods, by the ID of the container. It happens where kubelet and runtime have different cgroup drivers: runc without
// systemd takes the slice:prefix:name of a systemd cgroup for the name of a directory, and makes it beside or below the
// runtime's own cgroup (seen as system.slice/containerd.service/kubepods-pod1.slice:cri-containerd:ID); Docker makes
// the pod's slice at the top of the hierarchy.
//
// With ids nil, the names alone decide, and a container whose directory does not name a pod is left out. Otherwise the
// containers with these IDs are found, whatever contains them.
func Stray(m Mount, l cgroup.Layout, ids map[string]bool) (map[string]string, error) {
	found := map[string]string{}
	err := walkGroups(m, func(dir string) bool {
		if _, kubepods := cgroup.ParseLayout(dir); dir == l.Root || kubepods && ids == nil {
			return false // with names alone, a pod of another kubelet looks like a stray one
		}
		parent, name := path.Split(dir)
		if slice, rest, joined := strings.Cut(name, ":"); joined {
			parent, name = slice, rest[strings.LastIndexByte(rest, ':')+1:]
		}
		id, ok := cgroup.ContainerID(name)
		if ok && (ids[id] || ids == nil && namesPod(path.Base(parent))) {
			found[id] = dir
		}
		return true
	})
	if err != nil {
		return nil, fmt.Errorf("looking for containers outside of %s: %w", l.Root, err)
	}
	return found, nil
}

// namesPod reports whether a directory has the name that a kubelet with the systemd driver gives the slice of a pod.
func namesPod(name string) bool {
	slice := cgroup.Layout{Driver: cgroup.Systemd}
	_, ok := slice.ParsePod(name)
	return ok && strings.Contains(name, "kubepods-")
}

// FindOutside finds the pods whose containers run outside of the pods' cgroups. Each container is looked for once,
// since a running container does not move. It reports whether anything changed. Call it after [Tree.Scan].
//
// A container that is found nowhere proves nothing: it may have ended since, or run inside a virtual machine.
func (t *Tree) FindOutside(pods []*model.Pod) (changed bool, err error) {
	missing := map[string]bool(nil)
	for _, where := range t.containers {
		where.seen = false
	}
	for _, pod := range pods {
		if pod.Ended || pod.Leaving {
			continue
		}
		var inside map[string]bool // read when the first unknown container needs it
		for i := range pod.Containers {
			c := &pod.Containers[i]
			if c.Init {
				continue // it has ended, mostly
			}
			if known := t.containers[c.ID]; known != nil {
				known.seen = true
				continue
			}
			if !cgroup.ValidContainerID(c.ID) {
				continue
			}
			if inside == nil {
				if inside, err = t.containersIn(pod.UID); err != nil {
					return changed, err
				}
			}
			t.containers[c.ID] = &place{pod: pod.UID, seen: true}
			if !inside[c.ID] {
				if missing == nil {
					missing = map[string]bool{}
				}
				missing[c.ID] = true
			}
		}
	}
	for id, where := range t.containers {
		if !where.seen {
			delete(t.containers, id)
			changed = changed || where.outside != ""
		}
	}
	if missing != nil {
		found, err := Stray(t.mount, t.layout, missing)
		if err != nil {
			for id := range missing {
				delete(t.containers, id) // the next call looks for it again
			}
			return changed, err
		}
		for id, dir := range found {
			t.containers[id].outside = dir
			changed = true
		}
	}
	if changed {
		t.model.Outside = t.outside()
	}
	return changed, nil
}

// place is where the container of a pod runs.
type place struct {
	pod     string // its UID
	outside string // directory outside of all pods; "": it was not found there
	seen    bool   // by the current search
}

// containersIn returns the IDs of the containers in the cgroup of a pod.
func (t *Tree) containersIn(uid string) (map[string]bool, error) {
	all := map[string]bool{}
	p := t.pods[uid]
	if p == nil {
		return all, nil
	}
	entries, err := os.ReadDir(filepath.Join(t.mount.Path, p.group.Dir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("listing the containers of a pod: %w", err)
	}
	for _, e := range entries {
		if id, ok := cgroup.ContainerID(e.Name()); ok && e.IsDir() {
			all[id] = true
		}
	}
	return all, nil
}

// outside returns the pods with containers outside, ordered by UID, each with the first of these directories.
func (t *Tree) outside() []model.Outside {
	first := map[string]string{}
	for _, where := range t.containers {
		if dir := where.outside; dir != "" && (first[where.pod] == "" || dir < first[where.pod]) {
			first[where.pod] = dir
		}
	}
	var all []model.Outside
	for _, uid := range slices.Sorted(maps.Keys(first)) {
		all = append(all, model.Outside{UID: uid, Dir: first[uid]})
	}
	return all
}
