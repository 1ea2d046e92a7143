package host

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// What it takes to have memory protected.
const (
	protectionFiles     = "needs the memory controller, with memory.min"
	protectionRecursive = "needs cgroup2 mounted with memory_recursiveprot, as systemd does (Linux 5.7)"
)

// noProtection returns why the memory of pods cannot be protected on cgroup v2; "" if it can. Without memory_recursiveprot, which
// is an option of the hierarchy whoever mounts it, what a pod is protected with protects nothing in its containers.
func noProtection(proc string, has bool) string {
	if !has {
		return protectionFiles
	}
	mounts, err := os.ReadFile(filepath.Join(proc, "self/mountinfo"))
	if err != nil {
		return protectionRecursive
	}
	for line := range bytes.Lines(mounts) {
		_, super, _ := strings.Cut(string(line), " - ")
		if fields := strings.Fields(super); len(fields) == 3 && fields[0] == "cgroup2" && strings.Contains(","+fields[2]+",", ",memory_recursiveprot,") {
			return ""
		}
	}
	return protectionRecursive
}

// LookForMemoryQoS looks whether a container of the pods that are followed was made with its memory protected, or slowed down
// above some amount, and reports whether that is news. The container runtime does it for the kubelet's MemoryQoS, and we never.
//
// It opens two files of each container, so it is for audits, where the answer counts.
func (t *Tree) LookForMemoryQoS() (changed bool) {
	found := false
	for _, p := range t.pods {
		if p.lister == nil || !t.model.V2 {
			continue
		}
		for _, name := range p.group.Containers {
			dir := filepath.Join(t.mount.Path, p.group.Dir, name)
			found = found || t.deviates(dir, model.MemoryHigh, model.Unlimited) || t.deviates(dir, model.MemoryMin, 0)
		}
	}
	changed = found != t.model.MemoryQoS
	t.model.MemoryQoS = found
	return changed
}

// deviates reports whether a group's file of memory holds something else than the kernel puts there. One that cannot be read
// does not: the container ended.
func (t *Tree) deviates(dir string, k model.Knob, otherwise int64) bool {
	content, err := os.ReadFile(filepath.Join(dir, cgroup.FileName(t.mount.Version, k)))
	if err != nil {
		return false
	}
	raw, err := cgroup.Parse(t.mount.Version, k, content, cgroup.Raw{})
	return err == nil && raw.Number != otherwise
}
