package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/waterline-io/waterline/internal/cgroup"
)

// recursive is what a process of a node with systemd reads of its mounts.
const recursive = `22 27 0:20 / /proc rw,nosuid,nodev,noexec,relatime shared:13 - proc proc rw
29 23 0:25 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot
30 27 0:26 / /tmp/memory_recursiveprot rw - tmpfs tmpfs rw
`

// TestNoProtection checks when protection reaches the containers of a pod.
func TestNoProtection(t *testing.T) {
	for _, c := range []struct {
		name, mounts string
		has          bool
		want         string
	}{
		{"a node with systemd", recursive, true, ""},
		{"an old kernel, or no controller", recursive, false, protectionFiles},
		{"mounted without the option", strings.Replace(recursive, ",memory_recursiveprot", "", 1), true, protectionRecursive},
		{
			"another option", strings.Replace(recursive, ",memory_recursiveprot", ",memory_recursiveprotx", 1), true,
			protectionRecursive,
		},
		{"nothing mounted", "", true, protectionRecursive},
		{"in a container", "1 2 0:25 / /host/cgroup ro - cgroup2 cgroup rw,memory_recursiveprot\n", true, ""},
	} {
		proc := t.TempDir()
		if err := os.Mkdir(filepath.Join(proc, "self"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(proc, "self/mountinfo"), []byte(c.mounts), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := noProtection(proc, c.has); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	if got := noProtection(t.TempDir(), true); got != protectionRecursive {
		t.Errorf("without proc: %q", got)
	}
}

// TestDetectMemoryQoS checks that the kubelet's MemoryQoS is found by what the runtime set in containers, whichever of
// them and of the files it is, and no longer when those are gone. What stands in the pod's own group may be ours and
// says nothing.
func TestDetectMemoryQoS(t *testing.T) {
	root := t.TempDir()
	layout, _ := cgroup.ParseLayout("kubepods")
	write := func(dir, file, text string) {
		t.Helper()
		dir = filepath.Join(root, dir)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	const pod = "kubepods/burstable/poda"
	containers := []string{pod + "/0123456789aa", pod + "/0123456789bb"}
	for _, dir := range append([]string{pod}, containers...) {
		write(dir, "memory.high", "max\n")
		write(dir, "memory.min", "0\n")
	}
	tree := NewTree(Mount{Version: cgroup.V2, Path: root, Memory: root}, layout, nil)
	tree.proc = t.TempDir()
	defer tree.Close()
	look := func(what string, want, news bool) {
		t.Helper()
		if _, err := tree.Scan(func(string) bool { return true }); err != nil {
			t.Fatal(err)
		}
		if got := tree.DetectMemoryQoS(); got != news || tree.Model().MemoryQoS != want {
			t.Errorf("%s: news %v, found %v", what, got, tree.Model().MemoryQoS)
		}
	}
	look("nothing is set", false, false)
	write(pod, "memory.min", "1048576\n")
	write(pod, "memory.high", "1048576\n")
	look("the pod's own", false, false)
	write(containers[1], "memory.high", "94371840\n")
	look("slowed down", true, true)
	look("again", true, false)
	write(containers[1], "memory.high", "max\n")
	look("no more", false, true)
	write(containers[0], "memory.min", "94371840\n")
	look("protected", true, true)
	if err := os.RemoveAll(filepath.Join(root, containers[0])); err != nil {
		t.Fatal(err)
	}
	look("it ended", false, true)
	write(containers[1], "memory.low", "94371840\n")
	look("a Burstable one, protected by a policy alone", true, true)
}
