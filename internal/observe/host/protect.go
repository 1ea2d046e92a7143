package host

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// Reasons why memory protection is unavailable, in the form "needs ...".
const (
	protectionFiles     = "needs the memory controller, with memory.min"
	protectionRecursive = "needs cgroup2 mounted with memory_recursiveprot, as systemd does (Linux 5.7)"
)

// noProtection returns why the memory of pods cannot be protected on cgroup v2, "" if it can. Without
// memory_recursiveprot the protection of a pod does not reach its containers. The option belongs to the
// hierarchy, so any mount of it shows the option.
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
		fields := strings.Fields(super)
		if len(fields) == 3 && fields[0] == "cgroup2" && strings.Contains(","+fields[2]+",", ",memory_recursiveprot,") {
			return ""
		}
	}
	return protectionRecursive
}

// DetectMemoryQoS detects the kubelet's MemoryQoS and reports whether the result changed. With MemoryQoS the
// container runtime sets memory.min, memory.low (from 1.36 on) or memory.high of containers, which Waterline never
// does. The check covers the containers of followed pods.
//
// It opens three files per container, so callers run it only in audits.
func (t *Tree) DetectMemoryQoS() (changed bool) {
	found := false
	for _, p := range t.pods {
		if p.lister == nil || !t.model.V2 {
			continue
		}
		for _, name := range p.group.Containers {
			dir := filepath.Join(t.mount.Path, p.group.Dir, name)
			found = found || t.differs(dir, model.MemoryHigh, model.Unlimited) || t.differs(dir, model.MemoryMin, 0) ||
				t.differs(dir, model.MemoryLow, 0)
		}
	}
	changed = found != t.model.MemoryQoS
	t.model.MemoryQoS = found
	return changed
}

// differs reports whether a memory file of a group holds another value than the kernel's default. A file that
// cannot be read does not differ: the container has ended.
func (t *Tree) differs(dir string, k model.Knob, standard int64) bool {
	content, err := os.ReadFile(filepath.Join(dir, cgroup.FileName(t.mount.Version, k)))
	if err != nil {
		return false
	}
	raw, err := cgroup.Parse(t.mount.Version, k, content, cgroup.Raw{})
	return err == nil && raw.Number != standard
}
