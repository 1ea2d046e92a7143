package cgroup

import (
	"path"
	"strings"

	"github.com/waterline-io/waterline/internal/model"
)

// Driver is the cgroup driver of a kubelet: the kubelet makes the directories of pods itself, or systemd does.
type Driver uint8

// Cgroup drivers.
const (
	Cgroupfs Driver = iota + 1
	Systemd
)

// String returns the name of the driver in the kubelet's configuration.
func (d Driver) String() string {
	if d == Systemd {
		return "systemd"
	}
	return "cgroupfs"
}

// Layout is the place of one kubelet's pods in the cgroup hierarchy.
type Layout struct {
	Driver Driver
	// Root is the directory of all pods, relative to the cgroup mount, such as "kubepods" or
	// "kubelet.slice/kubelet-kubepods.slice".
	Root string
}

// ParseLayout recognises a kubelet's directory of pods by its name. The name is kubepods with the cgroupfs
// driver and kubepods.slice with systemd, below the directory of --cgroup-root. Systemd repeats the name of
// that directory as a prefix, as in kind's kubelet-kubepods.slice.
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

// Class returns the directory of a QoS class. Guaranteed pods have no directory of their own and are in the
// root.
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

// Pod returns the directory of a pod. [ValidUID] must accept the UID.
func (l Layout) Pod(q model.QoSClass, uid string) string {
	class := l.Class(q)
	if l.Driver == Cgroupfs {
		return class + "/pod" + uid
	}
	prefix := strings.TrimSuffix(path.Base(class), ".slice")
	return class + "/" + prefix + "-pod" + strings.ReplaceAll(uid, "-", "_") + ".slice"
}

// ParsePod returns the UID of the pod whose directory has this name. The name may not show the QoS class; the
// parent directory does. Systemd names have underscores in place of the dashes of a UID. A UID with underscores
// of its own would not be recognised; no API server creates one.
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

// ContainerID returns the ID of the container of a directory inside a pod's directory. It knows the names that
// containerd, CRI-O and Docker use with both drivers. It returns false for directories without a container of
// the pod, such as those of CRI-O's monitor and Kata's sandbox.
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

// ContainerOf returns the container of a pod for the name of a directory inside the pod's directory, nil if it
// is unknown.
func ContainerOf(pod *model.Pod, name string) *model.Container {
	id, ok := ContainerID(name)
	for i := range pod.Containers {
		if ok && pod.Containers[i].ID == id {
			return &pod.Containers[i]
		}
	}
	return nil
}

// ValidUID reports whether a string can be the UID of a pod: a UUID from the API server, or the hexadecimal
// hash of a static pod's manifest. No other string may become part of a path.
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

// ValidContainerID reports whether a string can be a container ID from a runtime: 12 to 128 hexadecimal digits.
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
