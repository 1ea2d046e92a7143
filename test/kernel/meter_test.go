package kernel_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
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

// TestMeterCPU compares the meter's figures of a load with those of another reader.
func TestMeterCPU(t *testing.T) {
	seconds, inexact := 10, 0.01
	switch {
	case soak():
		seconds = 60
	case emulated():
		inexact = 0.05
	}
	everyNode(t, func(t *testing.T, n *meterNode) {
		limited, free, idle := n.add("limited"), n.add("free"), n.add("idle")
		dirs := []string{n.layout.Root, n.layout.Class(model.Burstable), limited, free, idle}
		quota := n.tryText(limited, cgroup.FileName(n.mount.Version, model.Quota),
			string(cgroup.Append(nil, n.mount.Version, model.Quota, cgroup.Raw{Number: 30_000}))) == nil
		m := n.meter()
		n.measure(m, none)
		next, last := time.Now(), time.Duration(0)
		for range 2 {
			next = next.Add(time.Second)
			time.Sleep(time.Until(next))
			last = n.measure(m, none).Pod("free").CPU.At
		}
		n.burn(limited)
		n.burn(free)
		next = next.Add(time.Second)
		time.Sleep(time.Until(next))
		load := n.measure(m, none)
		used, _ := n.used(free) // all time since the previous one; on a busy machine this is less than a CPU
		usage := load.Pod("free").CPU
		if is := float64(usage.Milli) * (usage.At - last).Seconds(); is < 0.7*float64(used)/1e6 || is == 0 {
			t.Errorf("a load that began in the last second and used %d ms is %d mCPU in %s", used/1e6, usage.Milli,
				usage.At-last)
		}
		var before, after []uint64
		var began, ended []time.Time
		lasts := make([]time.Duration, len(dirs)+1) // last measurement of each group, and of the node
		for i, dir := range dirs {
			nanos, at := n.used(dir)
			before, began = append(before, nanos), append(began, at)
			lasts[i] = measuredOf(load)[i].CPU.At
		}
		lasts[len(dirs)] = load.Node.CPU.At
		// A test that was kept waiting measured for longer than a second, and counts usage for that time.
		spans := make([]float64, len(dirs)+1)
		grow := func(i int, at time.Duration, milli int64) float64 {
			span := (at - lasts[i]).Seconds()
			lasts[i] = at
			spans[i] += span
			return span * float64(milli)
		}
		sums, node, stolen := make([]float64, len(dirs)), 0.0, 0.0
		var periods, throttled int64
		var worst float64
		var late time.Duration // time from the first group to the last, in the previous measurement
		for range seconds {
			next = next.Add(time.Second)
			time.Sleep(time.Until(next))
			load = n.measure(m, none)
			usages := measuredOf(load)
			for i, u := range usages {
				if age := load.Age(u.CPU.At); age > 200*time.Millisecond && !emulated() {
					t.Errorf("%s was measured %s ago", dirs[i], age)
				}
				sums[i] += grow(i, u.CPU.At, u.CPU.Milli)
			}
			stolen += float64(load.Stolen) * (load.Node.CPU.At - lasts[len(dirs)]).Seconds()
			node += grow(len(dirs), load.Node.CPU.At, load.Node.CPU.Milli)
			periods, throttled = periods+usages[2].CPU.Periods, throttled+usages[2].CPU.Throttled
			pods := usages[2].CPU.Milli + usages[3].CPU.Milli + usages[4].CPU.Milli
			// If the meter waited for a CPU between two groups, they are not of the same second.
			if usages[4].CPU.At-usages[1].CPU.At < time.Millisecond && late < time.Millisecond {
				worst = max(worst, math.Abs(float64(pods)/float64(usages[1].CPU.Milli)-1))
			}
			late = usages[4].CPU.At - usages[1].CPU.At
		}
		node, stolen = node/spans[len(dirs)], stolen/spans[len(dirs)]
		for i, dir := range dirs {
			sums[i] /= spans[i]
			nanos, at := n.used(dir)
			after, ended = append(after, nanos), append(ended, at)
			want := float64(after[i]-before[i]) / float64(ended[i].Sub(began[i])) * 1000
			t.Logf("%-60s %7.1f mCPU, another reader %7.1f", dir, sums[i], want)
			if math.Abs(sums[i]-want) > inexact*want+1 {
				t.Errorf("%s: %.1f mCPU, another reader measures %.1f", dir, sums[i], want)
			}
		}
		t.Logf("the node %.1f mCPU, and %.1f stolen; the pods' sum is at worst %.2f %% off the class; %d periods, "+
			"%d throttled", node, stolen, 100*worst, periods, throttled)
		if worst > 0.01 && !emulated() {
			t.Errorf("in one second the pods' sum was %.2f %% off their class", 100*worst)
		}
		// The kernel may count stolen time as used by the pods, but not by the machine. The mean may slightly exceed the
		// capacity.
		if node+stolen < sums[0]*0.99-10 || node > float64(load.CPUMilli)+0.1 {
			t.Errorf("the node used %.1f mCPU, and %.1f were stolen, its pods %.1f", node, stolen, sums[0])
		}
		if quota && (periods < 5*int64(seconds) || throttled < periods/2) {
			t.Errorf("%d periods, %d throttled", periods, throttled)
		}
		if p := load.Pod("limited").Pressure; n.mount.Version == cgroup.V2 && load.Node.Pressure.At > 0 && p.At == 0 {
			t.Error("no pressure")
		}
	})
}

// measuredOf returns the measurements of the groups of [TestMeterCPU], in its order.
func measuredOf(load *model.Load) []model.Usage {
	return []model.Usage{load.Classes[model.Guaranteed], load.Classes[model.Burstable], load.Pod("limited").Usage,
		load.Pod("free").Usage, load.Pod("idle").Usage}
}

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

// TestMeterCost logs the CPU time of a measurement: 1.4 ms for 110 pods on an otherwise idle CPU. A meter that opened
// its files each time, or read those of containers too, would take several times as long.
func TestMeterCost(t *testing.T) {
	liveKernel(t, "times of an emulated CPU mean nothing")
	everyNode(t, func(t *testing.T, n *meterNode) {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		made := 0
		for _, count := range []int{110, 250} {
			for ; made < count; made++ {
				n.add(fmt.Sprintf("pod%03d", made))
			}
			m := n.meter()
			n.measure(m, none)
			time.Sleep(120 * time.Millisecond)
			n.measure(m, none)
			const runs = 20
			var took []time.Duration
			for range runs {
				time.Sleep(120 * time.Millisecond)
				begin := threadTime()
				n.measure(m, none)
				took = append(took, threadTime()-begin)
			}
			p50, p90, _ := quantiles(took)
			t.Logf("%d pods of 2 containers: p50 %s, p90 %s of CPU a measurement", count, p50, p90)
			if count == 110 && p50 > 3*time.Millisecond && !emulated() {
				t.Errorf("%s of CPU for 110 pods, want at most 3 ms", p50)
			}
			m.Close()
		}
	})
}

// threadTime returns the CPU time of this thread.
func threadTime() time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now)
	return time.Duration(now.Nano())
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
	for i := range 4 {
		began := time.Now()
		load, err := m.Measure(n.pods, details)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 { // a rate needs two readings
			time.Sleep(time.Second)
			continue
		}
		took := time.Since(began)
		if len(load.Pods) != count {
			t.Fatalf("%d pods were measured", len(load.Pods))
		}
		for _, p := range load.Pods {
			if age := load.Age(p.CPU.At); age > 2*time.Second && age > 2*took {
				t.Fatalf("the CPU time of %s was read %v ago; a measurement takes %v", p.UID, age, took)
			}
			if age := load.Age(p.Memory.At); p.Memory.At != 0 && age > 2*time.Second && age > 2*took {
				t.Fatalf("the memory of %s was read %v ago; a measurement takes %v", p.UID, age, took)
			}
		}
		t.Logf("a measurement of %d pods took %v", count, took)
		time.Sleep(time.Second)
	}
}
