// Package kernel_test checks properties of the live kernel that plain files do not have: which values cgroup files
// accept, refuse and report, and that the agent reaches its plan whatever happens to it. The same suite runs on the
// cgroup version of the host, and on v2 in the virtual machine of test/bed/vm.
//
// It needs root. It touches only its own sub-tree, which it removes.
package kernel_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/host"
	"github.com/waterline-io/waterline/test/poll"
)

// testNode is a private tree of pods in the kubelet's layout. The test acts as the kubelet.
type testNode struct {
	t      testing.TB
	mount  host.Mount
	layout cgroup.Layout
	memory bool // groups have memory limits too
}

var nodes atomic.Int64

// newNode makes the tree, or skips the test where that is impossible.
func newNode(t testing.TB) *testNode {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("live kernel: not root")
	}
	mount, err := host.FindMount(host.DefaultRoot)
	if err != nil {
		t.Skipf("live kernel: %v", err)
	}
	n := &testNode{t: t, mount: mount}
	top := fmt.Sprintf("waterline-test-%d-%d", os.Getpid(), nodes.Add(1))
	n.layout = cgroup.Layout{Driver: cgroup.Cgroupfs, Root: top + "/kubepods"}
	t.Cleanup(func() { n.remove(top) })
	n.delegate("")
	for _, dir := range []string{top, n.layout.Root, n.layout.Class(model.Burstable), n.layout.Class(model.BestEffort)} {
		n.mkdir(dir)
	}
	n.set(n.layout.Class(model.BestEffort), model.Shares, model.MinShares)
	return n
}

func (n *testNode) path(dir string, file ...string) string {
	return filepath.Join(append([]string{n.mount.Path, dir}, file...)...)
}

// mkdir makes a group that can contain further groups.
func (n *testNode) mkdir(dir string) {
	n.t.Helper()
	n.group(dir)
	n.delegate(dir)
}

// group makes a group. On v1, its directory in the cpuset hierarchy is made first, in the order of runc, and gets the
// CPUs and memory of the parent, without which no process can enter. Its directory in the memory hierarchy is made
// second.
func (n *testNode) group(dir string) {
	n.t.Helper()
	if n.memory && n.mount.Memory != n.mount.Path {
		if err := os.Mkdir(filepath.Join(n.mount.Memory, dir), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			n.t.Fatal(err)
		}
	}
	if n.separate() {
		if err := os.Mkdir(n.cpusets(dir), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			n.t.Fatal(err)
		}
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			parent, err := os.ReadFile(n.cpusets(filepath.Dir(dir), file))
			if err == nil {
				err = os.WriteFile(n.cpusets(dir, file), parent, 0)
			}
			if err != nil {
				n.t.Fatal(err)
			}
		}
	}
	if err := os.Mkdir(n.path(dir), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		n.t.Fatal(err)
	}
}

// separate reports whether CPU sets have their own hierarchy.
func (n *testNode) separate() bool { return n.mount.Cpusets != "" && n.mount.Cpusets != n.mount.Path }

// cpusets returns the path of a group, or of one of its files, in the hierarchy of the cpuset controller.
func (n *testNode) cpusets(dir string, file ...string) string {
	return filepath.Join(append([]string{n.mount.Cpusets, dir}, file...)...)
}

// delegate gives the children of a group the kubelet's controllers. Only v2 needs this.
func (n *testNode) delegate(dir string) {
	n.t.Helper()
	if n.mount.Version == cgroup.V1 {
		return
	}
	controllers := "+cpu"
	if n.mount.Cpusets != "" {
		controllers += " +cpuset"
	}
	if n.memory {
		controllers += " +memory"
	}
	if err := os.WriteFile(n.path(dir, "cgroup.subtree_control"), []byte(controllers), 0); err != nil {
		n.t.Fatal(err)
	}
}

// pod makes the group of a pod and those of its containers, like a kubelet, and returns the pod's.
func (n *testNode) pod(q model.QoSClass, uid string, requestMilli int64, containers ...string) string {
	n.t.Helper()
	dir := n.layout.Pod(q, uid)
	n.mkdir(dir)
	n.set(dir, model.Shares, model.MilliCPUToShares(requestMilli))
	for _, id := range containers {
		n.group(dir + "/" + id)
	}
	return dir
}

// set writes a knob in its unit, like the kubelet.
func (n *testNode) set(dir string, k model.Knob, value int64) {
	n.t.Helper()
	if err := n.try(dir, k, value); err != nil {
		n.t.Fatal(err)
	}
}

func (n *testNode) try(dir string, k model.Knob, value int64) error {
	v := n.mount.Version
	return write(n.file(dir, k), string(cgroup.Append(nil, v, k, cgroup.ToRaw(v, k, model.Number(value)))))
}

// file returns the path of a knob's file.
func (n *testNode) file(dir string, k model.Knob) string {
	return filepath.Join(n.mount.OfKnob(k), dir, cgroup.FileName(n.mount.Version, k))
}

func (n *testNode) tryText(dir, file, text string) error { return write(n.path(dir, file), text) }

func write(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(text)
	return err
}

// raw reads a knob in the kernel's unit; -2: the knob does not exist.
func (n *testNode) raw(dir string, k model.Knob) int64 {
	n.t.Helper()
	content, err := os.ReadFile(n.file(dir, k))
	if err != nil {
		return -2
	}
	raw, err := cgroup.Parse(n.mount.Version, k, content, cgroup.Raw{})
	if err != nil {
		n.t.Fatal(err)
	}
	return raw.Number
}

func (n *testNode) text(dir, file string) string {
	content, err := os.ReadFile(n.path(dir, file))
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(content))
}

// holds reports whether a knob has a value, as the kernel rounds it.
func (n *testNode) holds(dir string, k model.Knob, value int64) bool {
	return n.raw(dir, k) == cgroup.ToRaw(n.mount.Version, k, model.Number(value)).Number
}

// expect waits until a knob has a value.
func (n *testNode) expect(dir string, k model.Knob, value int64) {
	n.t.Helper()
	within(n.t, fmt.Sprintf("%s %s = %d", dir, k, value), func() bool { return n.holds(dir, k, value) },
		func() string { return strconv.FormatInt(n.raw(dir, k), 10) })
}

// within waits for a generous time until a condition holds. It checks that the condition becomes true, not how fast.
func within(t testing.TB, what string, holds func() bool, instead func() string) {
	t.Helper()
	limit := time.Minute
	if emulated() {
		limit *= 3
	}
	waitFor(t, limit, what, holds, instead)
}

// patience is the limit of waits for what the agent decides after measurements of many seconds, or after processes had
// CPU time, which takes long beside other load.
const patience = 10 * time.Minute

// waitFor is within with a limit of its own.
func waitFor(t testing.TB, limit time.Duration, what string, holds func() bool, instead func() string) {
	t.Helper()
	if !poll.Until(limit, time.Millisecond, holds) {
		t.Fatalf("not within %s: %s; instead %s", limit, what, instead())
	}
}

// remove removes a group and all groups below it. No process runs in them any more.
func (n *testNode) remove(dir string) {
	n.removeAt(n.path(dir))
	if n.separate() {
		n.removeAt(n.cpusets(dir))
	}
	if n.memory && n.mount.Memory != n.mount.Path {
		n.removeAt(filepath.Join(n.mount.Memory, dir))
	}
}

func (n *testNode) removeAt(path string) {
	entries, _ := os.ReadDir(path)
	for _, e := range entries {
		if e.IsDir() {
			n.removeAt(filepath.Join(path, e.Name()))
		}
	}
	var err error
	poll.Until(3*time.Minute, 5*time.Millisecond, func() bool {
		err = os.Remove(path)
		return !errors.Is(err, unix.EBUSY) // a killed process is in its group until it has left the kernel
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		n.t.Errorf("cleaning up: %v", err)
	}
}
