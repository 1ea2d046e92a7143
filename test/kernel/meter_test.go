package kernel_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/host"
)

// meterNode is a node whose groups also count CPU time and memory.
type meterNode struct {
	*testNode
	last    []model.Detail // files that the meter read, with their times
	seconds bool
	paths   []string // hierarchies in which a group must have a directory
	pods    map[string]model.PodGroup
}

func newMeterNode(t testing.TB) *meterNode {
	n := &meterNode{testNode: newNode(t), pods: map[string]model.PodGroup{}}
	for _, path := range []string{n.mount.Cpuacct, n.mount.Memory} {
		if path != "" && path != n.mount.Path && !slices.Contains(n.paths, path) {
			n.paths = append(n.paths, path)
		}
	}
	top := filepath.Dir(n.layout.Root)
	t.Cleanup(func() {
		for _, path := range n.paths {
			n.removeAt(filepath.Join(path, top))
		}
	})
	n.count("")
	for _, dir := range []string{top, n.layout.Root, n.layout.Class(model.Burstable), n.layout.Class(model.BestEffort)} {
		n.count(dir)
	}
	return n
}

// unified makes the same node in the v2 hierarchy of a hybrid host. Its groups have CPU time and pressure without any
// controller. It returns nil on any other host.
func unified(t testing.TB) *meterNode {
	root := filepath.Join(host.DefaultRoot, "unified")
	var st unix.Statfs_t
	if os.Geteuid() != 0 || unix.Statfs(root, &st) != nil || st.Type != unix.CGROUP2_SUPER_MAGIC {
		return nil
	}
	mount := host.Mount{Version: cgroup.V2, Path: root, Cpuacct: root}
	top := fmt.Sprintf("waterline-test-%d-%d", os.Getpid(), nodes.Add(1))
	n := &testNode{t: t, mount: mount, layout: cgroup.Layout{Driver: cgroup.Cgroupfs, Root: top + "/kubepods"}}
	t.Cleanup(func() { n.remove(top) })
	for _, dir := range []string{top, n.layout.Root, n.layout.Class(model.Burstable), n.layout.Class(model.BestEffort)} {
		n.group(dir)
	}
	return &meterNode{testNode: n, pods: map[string]model.PodGroup{}}
}

// everyNode runs a test on this machine's node and, on a hybrid host, on the node of its v2 hierarchy.
func everyNode(t *testing.T, test func(*testing.T, *meterNode)) {
	t.Run("node", func(t *testing.T) { test(t, newMeterNode(t)) })
	t.Run("unified", func(t *testing.T) {
		n := unified(t)
		if n == nil {
			t.Skip("not a hybrid host")
		}
		test(t, n)
	})
}

// count adds the controllers to a group that count its CPU time and memory.
func (n *meterNode) count(dir string) {
	n.t.Helper()
	for _, path := range n.paths {
		if err := os.Mkdir(filepath.Join(path, dir), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			n.t.Fatal(err)
		}
	}
	// Container groups get no controllers, because processes could no longer enter them.
	above := filepath.Dir(filepath.Dir(dir))
	if n.mount.Version == cgroup.V2 && n.mount.Memory != "" && above != n.layout.Class(model.Burstable) &&
		above != n.layout.Class(model.BestEffort) {
		if err := os.WriteFile(n.path(dir, "cgroup.subtree_control"), []byte("+memory"), 0); err != nil {
			n.t.Fatal(err)
		}
	}
}

// add makes a Burstable pod with two containers.
func (n *meterNode) add(uid string) string {
	n.t.Helper()
	dir := n.layout.Pod(model.Burstable, uid)
	controlled := n.mount.Version == cgroup.V1 || n.mount.Cpusets != ""
	if controlled {
		n.mkdir(dir)
	} else {
		n.group(dir)
	}
	n.count(dir)
	ids := []string{"0123456789aa", "0123456789bb"}
	for _, id := range ids {
		n.group(dir + "/" + id)
		n.count(dir + "/" + id)
	}
	var st unix.Stat_t
	if err := unix.Stat(n.path(dir), &st); err != nil {
		n.t.Fatal(err)
	}
	n.pods[uid] = model.PodGroup{Dir: dir, Inode: st.Ino, Containers: ids}
	return dir
}

// drop removes a pod's group in every hierarchy.
func (n *meterNode) drop(uid string) {
	n.t.Helper()
	dir := n.layout.Pod(model.Burstable, uid)
	n.remove(dir)
	for _, path := range n.paths {
		n.removeAt(filepath.Join(path, dir))
	}
	delete(n.pods, uid)
}

func (n *meterNode) meter() *host.Meter {
	m := host.NewMeter(n.mount, n.layout, host.DefaultProc)
	n.t.Cleanup(m.Close)
	return m
}

// run starts a command in a pod's first container.
func (n *meterNode) run(dir string, argv ...string) *exec.Cmd {
	n.t.Helper()
	dir += "/0123456789aa"
	script := `for f in $FILES; do echo $$ >$f || exit 1; done; exec "$@"`
	files := []string{n.path(dir, "cgroup.procs")}
	for _, path := range n.paths {
		files = append(files, filepath.Join(path, dir, "cgroup.procs"))
	}
	cmd := exec.Command("sh", append([]string{"-c", script, "sh"}, argv...)...)
	cmd.Env = append(os.Environ(), "FILES="+strings.Join(files, " "))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	n.t.Cleanup(func() {
		if cmd.Process != nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	return cmd
}

func (n *meterNode) burn(dir string) {
	n.t.Helper()
	if err := n.run(dir, "sh", "-c", "while :; do :; done").Start(); err != nil {
		n.t.Fatal(err)
	}
}

// used reads a group's CPU time independently of the meter, and the time of the read.
func (n *meterNode) used(dir string) (nanos uint64, at time.Time) {
	n.t.Helper()
	file := filepath.Join(n.mount.Cpuacct, dir, cgroup.StatFile(n.mount.Version, cgroup.CPUUsage))
	at = time.Now()
	content, err := os.ReadFile(file)
	if err != nil {
		n.t.Fatal(err)
	}
	format, factor := "%d", uint64(1)
	if n.mount.Version == cgroup.V2 {
		format, factor = "usage_usec %d", 1000
	}
	if _, err := fmt.Sscanf(string(content), format, &nanos); err != nil {
		n.t.Fatal(err)
	}
	return nanos * factor, at
}

// The pods whose memory and pressure every measurement includes.
const (
	all  = true
	none = false
)

// details are computed only when the pods change, so that a measurement allocates nothing here.
func (n *meterNode) details(seconds bool) []model.Detail {
	if len(n.last) != len(n.pods) || n.seconds != seconds {
		n.last, n.seconds = nil, seconds
		for _, uid := range slices.Sorted(maps.Keys(n.pods)) {
			n.last = append(n.last, model.Detail{UID: uid, Seconds: seconds})
		}
	}
	return n.last
}

// measure measures and fails on any error.
func (n *meterNode) measure(m *host.Meter, seconds bool) *model.Load {
	n.t.Helper()
	load, err := m.Measure(n.pods, n.details(seconds))
	if err != nil {
		n.t.Fatal(err)
	}
	return load
}

// TestMeterUsage compares the meter's figures of a load with the counters that another reader reads before and after
// each measurement: what the meter counted lies between them, however long this test has to wait.
func TestMeterUsage(t *testing.T) {
	measurements := 5
	if testing.Short() {
		measurements = 3
	}
	everyNode(t, func(t *testing.T, n *meterNode) {
		busy, idle := n.add("busy"), n.add("idle")
		dirs := []string{n.layout.Class(model.Burstable), busy, idle}
		m := n.meter()
		n.burn(busy)
		var before, after [3]uint64 // the counters around the previous measurement
		var last [3]time.Duration   // its times
		for i := range measurements {
			if i > 0 {
				time.Sleep(time.Second)
			}
			var early, late [3]uint64
			for j, dir := range dirs {
				early[j], _ = n.used(dir)
			}
			load := n.measure(m, none)
			for j, dir := range dirs {
				late[j], _ = n.used(dir)
			}
			for j, u := range []model.CPUUsage{load.Classes[model.Burstable].CPU, load.Pod("busy").CPU, load.Pod("idle").CPU} {
				if i > 1 { // a rate needs two readings
					span := u.At - last[j]
					used := float64(u.Milli) * span.Seconds() * 1e6
					rounding := span.Seconds() * 1e6 // of Milli, and of counters in microseconds
					if least, most := counted(after[j], early[j]), counted(before[j], late[j]); span <= 0 ||
						used < least-rounding || used > most+rounding {
						t.Errorf("%s: %d mCPU in %s are %.0f ns, the counters say %.0f to %.0f", dirs[j], u.Milli, span, used,
							least, most)
					}
				}
				last[j] = u.At
			}
			before, after = early, late
		}
		if p := m.Load().Pod("busy").Pressure; n.mount.Version == cgroup.V2 && m.Load().Node.Pressure.At > 0 && p.At == 0 {
			t.Error("no pressure")
		}
	})
}

// counted returns the difference of two readings of a counter, in nanoseconds; 0 if they were read in the other order.
func counted(from, to uint64) float64 { return max(float64(to)-float64(from), 0) }

// TestMeterAnew lets a pod's group go and come back under its name while its files are open.
func TestMeterAnew(t *testing.T) {
	everyNode(t, func(t *testing.T, n *meterNode) {
		dir := n.add("a")
		m := n.meter()
		cmd := n.run(dir, "sh", "-c", "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; exec sleep 1000")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			time.Sleep(300 * time.Millisecond)
			n.measure(m, all)
		}
		was := n.measure(m, all).Pod("a").CPU
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		inode := n.pods["a"].Inode
		n.drop("a")
		n.pods["a"] = model.PodGroup{Dir: dir, Inode: inode} // not in the tree yet
		time.Sleep(150 * time.Millisecond)
		if got := n.measure(m, all).Pod("a").CPU; got != was {
			t.Errorf("after the removal: %+v, was %+v", got, was)
		}
		dir = n.add("a")
		n.pods["a"] = model.PodGroup{Dir: dir, Inode: inode}
		for range 4 { // the meter looks for it again after a while
			time.Sleep(150 * time.Millisecond)
			if got := n.measure(m, all).Pod("a").CPU; got != was && got.Milli != 0 {
				t.Errorf("after the return: %+v, was %+v", got, was)
			}
		}
		if got := n.measure(m, all).Pod("a"); got.CPU == was || got.Memory.At == 0 && n.mount.Memory != "" {
			t.Errorf("not measured again: %+v", got)
		}
	})
}

// TestMeterAllocations measures without a change.
func TestMeterAllocations(t *testing.T) {
	everyNode(t, func(t *testing.T, n *meterNode) {
		for i := range 20 {
			n.add(fmt.Sprintf("pod%d", i))
		}
		m := n.meter()
		for range 3 {
			n.measure(m, all)
			time.Sleep(110 * time.Millisecond)
		}
		before := m.Load().Node.CPU.At
		allocs := testing.AllocsPerRun(10, func() {
			time.Sleep(101 * time.Millisecond)
			n.measure(m, all)
		})
		if allocs != 0 || m.Load().Node.CPU.At == before {
			t.Errorf("%v allocations a measurement", allocs)
		}
	})
}

// allowFiles lets this process open count files. A container runtime allows its containers many more; the first process
// of a small virtual machine may open few, and may raise its limit.
func allowFiles(t *testing.T, count uint64) {
	t.Helper()
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		t.Fatal(err)
	}
	if files.Cur >= count {
		return
	}
	files.Cur, files.Max = count, max(files.Max, count)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		t.Fatalf("this process must be able to open %d files: %v", count, err)
	}
}

// TestMeterManyPods measures 500 pods, each of them each second: the account of a node is as old as the oldest
// measurement of a batch pod.
func TestMeterManyPods(t *testing.T) {
	liveKernel(t, "times of an emulated CPU mean nothing")
	n := newMeterNode(t)
	const count = 500
	allowFiles(t, 1<<14)
	var details []model.Detail
	for i := range count {
		uid := fmt.Sprintf("p%03d", i)
		n.add(uid)
		details = append(details, model.Detail{UID: uid, Seconds: true})
	}
	m := n.meter()
	cpu, memory := map[string]time.Duration{}, map[string]time.Duration{}
	for i := range 4 {
		load, err := m.Measure(n.pods, details)
		if err != nil {
			t.Fatal(err)
		}
		if len(load.Pods) != count && i > 0 { // a rate needs two readings
			t.Fatalf("%d pods were measured", len(load.Pods))
		}
		for _, p := range load.Pods {
			if i > 0 && p.CPU.At <= cpu[p.UID] || p.Memory.At != 0 && p.Memory.At <= memory[p.UID] {
				t.Fatalf("measurement %d has old figures of %s: %+v", i, p.UID, p)
			}
			cpu[p.UID], memory[p.UID] = p.CPU.At, p.Memory.At
		}
		time.Sleep(time.Second)
	}
}
