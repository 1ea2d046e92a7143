package cgroup

import (
	"path"
	"strings"

	"github.com/waterline-io/waterline/internal/model"
)

// Driver is who makes the directories of pods: the kubelet itself, or systemd on its behalf.
type Driver uint8

// The drivers.
const (
	Cgroupfs Driver = iota + 1
	Systemd
)

// String returns the driver as the kubelet's configuration spells it.
func (d Driver) String() string {
	if d == Systemd {
		return "systemd"
	}
	return "cgroupfs"
}

// Layout is where the pods of one kubelet are in the cgroup hierarchy.
type Layout struct {
	Driver Driver
	Root   string // directory of all pods, relative to the cgroup mount: "kubepods", "kubelet.slice/kubelet-kubepods.slice"
}

// ParseLayout recognises the directory of a kubelet's pods by its name. The kubelet calls it kubepods (cgroupfs) or
// kubepods.slice (systemd), below whatever --cgroup-root says; with systemd the root's name is repeated in front, as in
// kind's kubelet-kubepods.slice.
func ParseLayout(dir string) (Layout, bool) {
	dir = strings.Trim(dir, "/")
	switch base := path.Base(dir); {
	case base == "kubepods":
		return Layout{Driver: Cgroupfs, Root: dir}, true
	case base == "kubepods.slice" || strings.HasSuffix(base, "-kubepods.slice"):
		return Layout{Driver: Systemd, Root: dir}, true
	}
	return Layout{}, false
}

// Class returns the directory of a QoS class. Guaranteed pods have none of their own and stand in the root.
func (l Layout) Class(q model.QoSClass) string {
	if q == model.Guaranteed {
		return l.Root
	}
	name := strings.ToLower(q.String())
	if l.Driver == Cgroupfs {
		return l.Root + "/" + name
	}
	return l.Root + "/" + l.prefix() + name + ".slice"
}

// Pod returns the directory of a pod. The UID must be one that [ValidUID] accepts.
func (l Layout) Pod(q model.QoSClass, uid string) string {
	class := l.Class(q)
	if l.Driver == Cgroupfs {
		return class + "/pod" + uid
	}
	return class + "/" + strings.TrimSuffix(path.Base(class), ".slice") + "-pod" + strings.ReplaceAll(uid, "-", "_") + ".slice"
}

// ParsePod returns the UID of the pod whose directory has this name, of which QoS class it may be told only by the
// directory it stands in. Systemd's names have underscores for the dashes of a UID, so a UID with underscores of its own,
// which no API server hands out, would not be recognised again.
func (l Layout) ParsePod(name string) (uid string, ok bool) {
	if l.Driver == Cgroupfs {
		uid, ok = strings.CutPrefix(name, "pod")
	} else {
		name, ok = strings.CutSuffix(name, ".slice")
		if i := strings.LastIndex(name, "-pod"); ok && i >= 0 {
			uid = strings.ReplaceAll(name[i+len("-pod"):], "_", "-")
		}
	}
	return uid, ok && ValidUID(uid)
}

func (l Layout) prefix() string {
	return strings.TrimSuffix(path.Base(l.Root), ".slice") + "-"
}

// ContainerID returns the id of the container that a directory in a pod's directory belongs to, by the names that
// containerd, CRI-O and Docker give under both drivers. It is false for what holds no container of the pod's: CRI-O's
// monitor and Kata's sandbox.
func ContainerID(name string) (id string, ok bool) {
	name = strings.TrimSuffix(name, ".scope")
	if i := strings.LastIndexByte(name, '-'); i >= 0 {
		switch name[:i] {
		case "cri-containerd", "crio", "docker":
			name = name[i+1:]
		default:
			return "", false
		}
	}
	return name, ValidContainerID(name)
}

// ContainerOf returns the container of a pod that a directory of this name in the pod's directory belongs to; nil if it is
// not known.
func ContainerOf(pod *model.Pod, name string) *model.Container {
	id, ok := ContainerID(name)
	for i := range pod.Containers {
		if ok && pod.Containers[i].ID == id {
			return &pod.Containers[i]
		}
	}
	return nil
}

// ValidUID reports whether a string can be the UID of a pod: the UUID of the API server or the hexadecimal hash of a
// static pod's manifest. Nothing else may become part of a path.
func ValidUID(uid string) bool {
	if uid == "" || len(uid) > 63 {
		return false
	}
	for i := range len(uid) {
		c := uid[i]
		if !('0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '-' && i > 0) {
			return false
		}
	}
	return true
}

// ValidContainerID reports whether a string can be the id that a container runtime gave: hexadecimal digits.
func ValidContainerID(id string) bool {
	if len(id) < 12 || len(id) > 128 {
		return false
	}
	for i := range len(id) {
		c := id[i]
		if !('0' <= c && c <= '9' || 'a' <= c && c <= 'f') {
			return false
		}
	}
	return true
}
