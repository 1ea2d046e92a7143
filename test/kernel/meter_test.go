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
	return n.runIn(dir+"/0123456789aa", argv...)
}

// runIn starts a command in a group.
func (n *meterNode) runIn(dir string, argv ...string) *exec.Cmd {
	n.t.Helper()
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

// counters are a group's counters, as another reader than the meter reads them. For the node, nanos is the time in
// which its CPUs were idle.
type counters struct{ nanos, periods, throttled uint64 }

// counters reads the counters of a group.
func (n *meterNode) counters(dir string) (c counters) {
	n.t.Helper()
	c.nanos, _ = n.used(dir)
	for line := range strings.Lines(n.text(dir, "cpu.stat")) {
		_, _ = fmt.Sscanf(line, "nr_periods %d", &c.periods)
		_, _ = fmt.Sscanf(line, "nr_throttled %d", &c.throttled)
	}
	return c
}

// idle reads the time in which the CPUs of this machine were idle. Its resolution is 10 ms.
func (n *meterNode) idle() (c counters) {
	n.t.Helper()
	content, err := os.ReadFile(filepath.Join(host.DefaultProc, "stat"))
	if err != nil {
		n.t.Fatal(err)
	}
	var f [8]uint64 // user, nice, system, idle, iowait, irq, softirq, steal
	if _, err := fmt.Sscanf(string(content), "cpu %d %d %d %d %d %d %d %d", &f[0], &f[1], &f[2], &f[3], &f[4], &f[5],
		&f[6], &f[7]); err != nil {
		n.t.Fatal(err)
	}
	c.nanos = (f[3] + f[4] + f[7]) * 1e7
	return c
}

// reading is what another reader read before and after a measurement. What the meter read lies between them, however
// long the test has to wait.
type reading struct{ early, late counters }

// compared is one of the meter's figures and what it is compared with.
type compared struct {
	name  string
	read  func() counters
	usage func(*model.Load) model.CPUUsage
	cpus  float64 // of the node, whose counter is of idle time; 0: a group

	at        time.Duration // of the previous measurement
	rated     bool          // the previous measurement had a rate
	last      reading       // at the previous measurement
	base      reading       // at the last measurement without a rate
	sum       counters      // of periods in the measurements since
	milli     int64         // sum of all rates
	judged    int           // rates
	throttles int           // judged sums of periods
}

// follow compares the figures of another measurement. One has no rate if it is the first, or if the machine stood still
// before.
func (c *compared) follow(t *testing.T, now reading, u model.CPUUsage) {
	t.Helper()
	if u.At == c.at {
		c.base, c.sum, c.rated = now, counters{}, false
	} else {
		if c.rated {
			c.judged++
			c.rate(t, now, u)
		}
		c.rated = true
		c.milli += u.Milli
		c.sum.periods, c.sum.throttled = c.sum.periods+uint64(u.Periods), c.sum.throttled+uint64(u.Throttled)
		// On v1, the meter reads these counters only if the group has used 1 ms since.
		if c.cpus == 0 && counted(c.last.late.nanos, now.early.nanos) >= 1e6 {
			c.throttles++
			c.between(t, "periods", c.sum.periods, c.base.late.periods, now.early.periods, c.base.early.periods,
				now.late.periods)
			c.between(t, "throttled periods", c.sum.throttled, c.base.late.throttled, now.early.throttled,
				c.base.early.throttled, now.late.throttled)
		}
	}
	c.at, c.last = u.At, now
}

// rate compares a rate since the previous measurement.
func (c *compared) rate(t *testing.T, now reading, u model.CPUUsage) {
	t.Helper()
	span := u.At - c.at
	used, rounding := float64(u.Milli)*span.Seconds()*1e6, span.Seconds()*1e6 // of Milli, and of counters in microseconds
	least, most := counted(c.last.late.nanos, now.early.nanos), counted(c.last.early.nanos, now.late.nanos)
	if c.cpus > 0 {
		const resolution = 4e7 // nanoseconds, of four sums of ticks
		all := c.cpus * float64(span)
		least, most = max(all-most-resolution, 0), max(all-least+resolution, 0)
	}
	if span <= 0 || used < least-rounding || used > most+rounding {
		t.Errorf("%s: %d mCPU in %s are %.0f ns, the counters say %.0f to %.0f", c.name, u.Milli, span, used, least, most)
	}
}

// between checks that a sum lies between the differences of readings inside and around its interval.
func (c *compared) between(t *testing.T, what string, sum, insideFrom, insideTo, aroundFrom, aroundTo uint64) {
	t.Helper()
	if least, most := counted(insideFrom, insideTo), counted(aroundFrom, aroundTo); float64(sum) < least ||
		float64(sum) > most {
		t.Errorf("%s: %d %s, the counters say %.0f to %.0f", c.name, sum, what, least, most)
	}
}

// TestMeterUsage compares the meter's figures of the node, of all pods, of a class and of pods with the counters that
// another reader reads before and after each measurement.
func TestMeterUsage(t *testing.T) {
	measurements := 4
	if testing.Short() {
		measurements = 2
	}
	everyNode(t, func(t *testing.T, n *meterNode) {
		limited := n.add("limited")
		dirs := map[string]string{"busy": n.add("busy"), "idle": n.add("idle"), "limited": limited}
		// A small part of a CPU, which the kernel throttles also if other processes leave the pod little.
		quota := n.tryText(limited, cgroup.FileName(n.mount.Version, model.Quota),
			string(cgroup.Append(nil, n.mount.Version, model.Quota, cgroup.Raw{Number: 5_000}))) == nil
		all := []*compared{{name: "the node", read: n.idle, cpus: -1,
			usage: func(l *model.Load) model.CPUUsage { return l.Node.CPU }}}
		for _, q := range []model.QoSClass{model.Guaranteed, model.Burstable} {
			all = append(all, &compared{name: n.layout.Class(q),
				read:  func() counters { return n.counters(n.layout.Class(q)) },
				usage: func(l *model.Load) model.CPUUsage { return l.Classes[q].CPU }})
		}
		pods := map[string]*compared{}
		for _, uid := range slices.Sorted(maps.Keys(dirs)) {
			pods[uid] = &compared{name: uid, read: func() counters { return n.counters(dirs[uid]) },
				usage: func(l *model.Load) model.CPUUsage { return l.Pod(uid).CPU }}
			all = append(all, pods[uid])
		}
		m := n.meter()
		n.burn(dirs["busy"])
		n.burn(limited)
		enough := func() bool {
			for _, c := range all {
				if c.judged < measurements {
					return false
				}
			}
			return pods["busy"].milli > 0 && (!quota || pods["limited"].throttles > 0 && pods["limited"].sum.throttled > 0)
		}
		for i := 0; !enough(); i++ {
			if i == 20*measurements {
				t.Fatalf("busy and limited after %d measurements: %+v, %+v", i, pods["busy"], pods["limited"])
			}
			now := make([]reading, len(all))
			for j, c := range all {
				now[j].early = c.read()
			}
			load := n.measure(m, none)
			for j, c := range all {
				now[j].late = c.read()
			}
			all[0].cpus = float64(load.CPUMilli) / 1000
			for j, c := range all {
				c.follow(t, now[j], c.usage(load))
			}
			time.Sleep(time.Second)
		}
		if idle := pods["idle"]; idle.milli != 0 || idle.sum != (counters{}) {
			t.Errorf("the idle pod: %d mCPU, %+v", idle.milli, idle.sum)
		}
		if p := m.Load().Pod("busy").Pressure; n.mount.Version == cgroup.V2 && m.Load().Node.Pressure.At > 0 && p.At == 0 {
			t.Error("no pressure")
		}
	})
}

// counted returns the difference of two readings of a counter; 0 if they were read in the other order.
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
