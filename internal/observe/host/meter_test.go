package host

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// fakeNode is a directory tree that reads like a node whose clocks and counters the test sets.
type fakeNode struct {
	t          *testing.T
	mount      Mount
	layout     cgroup.Layout
	proc       string
	boot, mono time.Duration
	pods       map[string]model.PodGroup
	meter      *Meter
	from       int64 // of use of an online pod, from which on its containers are measured; 0: they are not
}

// used is what a group of the tree has used.
type used struct {
	nanos, periods, throttled uint64
	stall                     time.Duration
	bytes                     int64 // 10 parts anon, 2 active, 3 inactive
}

func newFakeNode(t *testing.T, v cgroup.Version, pods ...string) *fakeNode {
	root := t.TempDir()
	n := &fakeNode{t: t, mount: Mount{
		Version: v, Path: root, Cpuacct: root, Memory: root,
	}, layout: cgroup.Layout{Driver: cgroup.Cgroupfs, Root: "kubepods"},
		proc: filepath.Join(root, "proc"), boot: time.Hour, mono: time.Hour, pods: map[string]model.PodGroup{}}
	if v == cgroup.V1 {
		n.mount.Path, n.mount.Cpuacct, n.mount.Memory = filepath.Join(root, "cpu"), filepath.Join(root, "cpuacct"),
			filepath.Join(root, "memory")
	}
	n.file(filepath.Join(n.proc, "meminfo"), procMeminfo)
	n.file(filepath.Join(n.proc, "zoneinfo"), procZoneinfo)
	n.idle(0, 2)
	for q := range 3 {
		n.set(n.layout.Class(model.QoSClass(q)), used{})
	}
	for i, uid := range pods {
		n.pods[uid] = model.PodGroup{Dir: n.layout.Pod(model.Burstable, uid), Inode: uint64(i)}
		n.pod(uid, used{})
	}
	n.start()
	return n
}

func (n *fakeNode) start() {
	n.meter = NewMeter(n.mount, n.layout, n.proc)
	n.meter.clock = func(id int32) time.Duration {
		if id == bootClock {
			return n.boot
		}
		return n.mono
	}
	n.t.Cleanup(n.meter.Close)
}

func (n *fakeNode) file(path, text string) {
	n.t.Helper()
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, []byte(text), 0o600)
	}
	if err != nil {
		n.t.Fatal(err)
	}
}

// idle sets for how long the CPUs were idle since boot.
func (n *fakeNode) idle(d time.Duration, cpus int) { n.stolen(d, 0, cpus) }

// stolen sets for how long the CPUs were idle since boot, and for how long the hypervisor ran somebody else.
func (n *fakeNode) stolen(idle, stolen time.Duration, cpus int) {
	text := fmt.Sprintf("cpu  1 2 3 %d 0 0 0 %d 0 0\n", idle/(10*time.Millisecond), stolen/(10*time.Millisecond))
	for i := range cpus {
		text += fmt.Sprintf("cpu%d 1 2 3 4 0 0 0 0 0 0\n", i)
	}
	n.file(filepath.Join(n.proc, "stat"), text+"procs_running 3\n")
}

// set sets what a group has used.
func (n *fakeNode) set(dir string, u used) {
	n.t.Helper()
	throttle := fmt.Sprintf("nr_periods %d\nnr_throttled %d\n", u.periods, u.throttled)
	memory := fmt.Sprintf("anon %d\nactive_file %d\ninactive_file %d\n", u.bytes/15*10, u.bytes/15*2, u.bytes/15*3)
	stall := fmt.Sprintf("some avg10=0.00 avg60=0.00 avg300=0.00 total=%d\nfull avg10=0.00 avg60=0.00 avg300=0.00 "+
		"total=%d\n", u.stall.Microseconds(), u.stall.Microseconds()/2)
	texts := [cgroup.NumStats]string{cgroup.CPUUsage: fmt.Sprintf("usage_usec %d\n", u.nanos/1000) + throttle,
		cgroup.MemoryUsage:   fmt.Sprintln(u.bytes),
		cgroup.MemoryDetails: memory, cgroup.CPUStall: stall, cgroup.MemoryStall: stall, cgroup.IOStall: stall}
	if n.mount.Version == cgroup.V1 {
		texts[cgroup.CPUUsage], texts[cgroup.CPUThrottle] = fmt.Sprintln(u.nanos), throttle
		texts[cgroup.MemoryDetails] = "rss 1\n" +
			strings.NewReplacer("anon", "total_rss", "active", "total_active", "inactive", "total_inactive").Replace(memory)
	}
	for s, text := range texts {
		if hierarchy := n.mount.OfStat(cgroup.Stat(s)); hierarchy != "" {
			n.file(filepath.Join(hierarchy, dir, cgroup.StatFile(n.mount.Version, cgroup.Stat(s))), text)
		}
	}
}

// details measures batch pods each second, and containers of the others from n.from on.
func (n *fakeNode) details() []model.Detail {
	var all []model.Detail
	for _, uid := range slices.Sorted(maps.Keys(n.pods)) {
		d := model.Detail{UID: uid, Seconds: strings.HasPrefix(uid, "batch")}
		if !d.Seconds {
			d.Inside = n.from
		}
		all = append(all, d)
	}
	return all
}

func (n *fakeNode) pod(uid string, u used) { n.set(n.pods[uid].Dir, u) }

// pressure gives the kernel PSI.
func (n *fakeNode) pressure() {
	for _, what := range []string{"cpu", "memory", "io"} {
		n.file(filepath.Join(n.proc, "pressure", what),
			"some avg10=0.00 avg60=0.00 avg300=0.00 total=0\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n")
	}
}

// after measures when some time has passed.
func (n *fakeNode) after(d time.Duration) *model.Load {
	n.t.Helper()
	n.boot, n.mono = n.boot+d, n.mono+d
	load, err := n.meter.Measure(n.pods, n.details())
	if err != nil {
		n.t.Fatal(err)
	}
	return load
}

func bothVersions(t *testing.T, test func(t *testing.T, v cgroup.Version)) {
	for _, v := range []cgroup.Version{cgroup.V1, cgroup.V2} {
		t.Run(v.String(), func(t *testing.T) { test(t, v) })
	}
}

func TestMeter(t *testing.T) {
	bothVersions(t, func(t *testing.T, v cgroup.Version) {
		n := newFakeNode(t, v, "batch", "online")
		n.pressure()
		load := n.after(0)
		if load.Node.CPU.At != 0 || load.Pod("batch").CPU.At != 0 || load.Pod("online").Memory.At != n.boot ||
			load.CPUMilli != 2000 || load.Runnable != 3 {
			t.Errorf("first: %+v", load)
		}
		n.idle(1500*time.Millisecond, 2)
		n.pod("batch", used{nanos: 400e6, periods: 10, throttled: 4, stall: 250 * time.Millisecond, bytes: 15 << 20})
		n.set(n.layout.Class(model.Burstable), used{nanos: 500e6, bytes: 30 << 20})
		load = n.after(time.Second)
		got := load.Pod("batch")
		if want := (model.CPUUsage{At: n.boot, Milli: 400, Periods: 10, Throttled: 4}); got.CPU != want {
			t.Errorf("CPU: %+v, want %+v", got.CPU, want)
		}
		if want := (model.MemoryUsage{
			At: n.boot, WorkingSet: 12 << 20, Anon: 10 << 20, ActiveFile: 2 << 20, InactiveFile: 3 << 20,
		}); got.Memory != want {
			t.Errorf("memory: %+v, want %+v", got.Memory, want)
		}
		stall, want := model.Stall{Some: 250, Full: 125}, model.Pressure{}
		if v == cgroup.V2 {
			want = model.Pressure{At: n.boot, CPU: stall, Memory: stall, IO: stall}
		}
		if got.Pressure != want {
			t.Errorf("pressure: %+v, want %+v", got.Pressure, want)
		}
		if load.Node.CPU.Milli != 500 || load.Classes[model.Burstable].CPU.Milli != 500 ||
			load.Classes[model.Burstable].Memory.Anon != 20<<20 {
			t.Errorf("%+v", load)
		}
		if load.Node.Memory.WorkingSet != (24684092-22033084-478284)<<10 || load.Memory != 24684092<<10 ||
			load.Watermark != 17522*int64(os.Getpagesize()) {
			t.Errorf("memory of the node: %+v", load)
		}
		n.pod("batch", used{nanos: 1600e6, periods: 40, throttled: 4})
		if got := n.after(4 * time.Second).Pod("batch").CPU; got.Milli != 300 || got.Periods != 30 || got.Throttled != 0 {
			t.Errorf("the mean of 4 s: %+v", got)
		}
		n.boot += 7 * time.Second
		if load := n.meter.Load(); load.Clock != n.boot || load.Age(load.Node.CPU.At) != 7*time.Second {
			t.Errorf("Load: %+v", load)
		}
	})
}

// gapAfter checks that what happens between two measurements of a load leaves a gap, and nothing but a gap.
func gapAfter(t *testing.T, happens func(n *fakeNode, u *used) time.Duration) {
	t.Helper()
	bothVersions(t, func(t *testing.T, v cgroup.Version) {
		n := newFakeNode(t, v, "batch")
		n.pressure()
		u := used{nanos: 50e9, periods: 1000, throttled: 100, stall: 20 * time.Second}
		n.pod("batch", u)
		n.after(0)
		u.nanos, u.stall = u.nanos+500e6, u.stall+100*time.Millisecond
		n.pod("batch", u)
		was := *n.after(time.Second).Pod("batch")
		wait := happens(n, &u)
		n.pod("batch", u)
		if got := n.after(wait).Pod("batch"); got.CPU != was.CPU || got.Pressure != was.Pressure {
			t.Errorf("after it: %+v, was %+v", got.Usage, was.Usage)
		}
		u.nanos, u.stall = u.nanos+300e6, u.stall+200*time.Millisecond
		n.pod("batch", u)
		got := n.after(time.Second).Pod("batch")
		if got.CPU != (model.CPUUsage{At: n.boot, Milli: 300}) || v == cgroup.V2 && got.Pressure.CPU.Some != 200 {
			t.Errorf("then: %+v", got.Usage)
		}
	})
}

// TestMeterBackwards: an unsigned difference would wrap to 18 billion seconds of CPU time.
func TestMeterBackwards(t *testing.T) {
	gapAfter(t, func(_ *fakeNode, u *used) time.Duration { *u = used{nanos: 1000}; return time.Second })
}

// TestMeterAnew: a group made anew under the same name, of which the counter has already passed the old one's.
func TestMeterAnew(t *testing.T) {
	gapAfter(t, func(n *fakeNode, u *used) time.Duration {
		u.nanos, u.stall = u.nanos+900e6, u.stall+time.Second
		n.pods = map[string]model.PodGroup{"batch": {Dir: n.pods["batch"].Dir, Inode: 99}}
		return time.Second
	})
}

// TestMeterSuspended: what was used in the second before and after is not a mean over a minute.
func TestMeterSuspended(t *testing.T) {
	gapAfter(t, func(n *fakeNode, u *used) time.Duration {
		n.boot += 5 * time.Second
		u.nanos, u.stall = u.nanos+500e6, u.stall+time.Second
		return time.Second
	})
}

func TestMeterMissedMeasurements(t *testing.T) {
	gapAfter(t, func(_ *fakeNode, u *used) time.Duration {
		u.nanos, u.stall = u.nanos+9e9, u.stall+time.Second
		return 11 * time.Second
	})
}

// TestMeterClockBackwards: the clock cannot be set, but virtual machines are moved to other hosts.
func TestMeterClockBackwards(t *testing.T) {
	gapAfter(t, func(_ *fakeNode, u *used) time.Duration {
		u.nanos, u.stall = u.nanos+1e9, u.stall+time.Second
		return -30 * time.Second
	})
}

// TestMeterTooSoon measures twice within 100 ms. No time may be lost or counted twice by it.
func TestMeterTooSoon(t *testing.T) {
	n := newFakeNode(t, cgroup.V2, "batch")
	n.after(0)
	n.pod("batch", used{nanos: 500e6})
	was := n.after(time.Second).Pod("batch").CPU
	n.pod("batch", used{nanos: 550e6})
	if got := n.after(99 * time.Millisecond).Pod("batch").CPU; got != was {
		t.Errorf("%+v, was %+v", got, was)
	}
	n.pod("batch", used{nanos: 1000e6})
	if got := n.after(901 * time.Millisecond).Pod("batch").CPU; got.Milli != 500 {
		t.Errorf("%+v", got)
	}
}

// TestMeterBounds: a group may be counted late, but what no CPUs can have done is not believed; the machine never uses
// more than it has.
func TestMeterBounds(t *testing.T) {
	n := newFakeNode(t, cgroup.V1, "batch")
	n.idle(time.Hour, 2)
	n.after(0)
	n.pod("batch", used{nanos: 3900e6})
	load := n.after(time.Second)
	if load.Pod("batch").CPU.Milli != 3900 || load.Node.CPU.Milli != 2000 {
		t.Errorf("%+v", load)
	}
	n.pod("batch", used{nanos: 9000e6})
	n.idle(time.Hour+3*time.Second, 2)
	load = n.after(time.Second)
	if load.Pod("batch").CPU.Milli != 3900 || load.Node.CPU.Milli != 0 {
		t.Errorf("%+v", load)
	}
	// 1.2 s were idle and 0.5 s stolen. Then more is stolen than was left; and a machine that was moved counts anew.
	n.stolen(time.Hour+3*time.Second+1200*time.Millisecond, 500*time.Millisecond, 2)
	if load = n.after(time.Second); load.Node.CPU.Milli != 300 || load.Stolen != 500 {
		t.Errorf("used %d, stolen %d", load.Node.CPU.Milli, load.Stolen)
	}
	n.stolen(time.Hour+3*time.Second+1200*time.Millisecond, 5*time.Second, 2)
	if load = n.after(time.Second); load.Node.CPU.Milli != 0 || load.Stolen != 2000 {
		t.Errorf("used %d, stolen %d", load.Node.CPU.Milli, load.Stolen)
	}
	n.stolen(time.Hour+10*time.Second, 0, 2)
	if load = n.after(time.Second); load.Stolen != 0 {
		t.Errorf("after a move %d are stolen", load.Stolen)
	}
	was := load.Node.CPU
	n.idle(time.Hour, 3) // a CPU came: its idle time is another
	if load = n.after(time.Second); load.Node.CPU != was || load.CPUMilli != 3000 {
		t.Errorf("%+v", load)
	}
	n.idle(time.Hour+time.Second, 3)
	if load = n.after(time.Second); load.Node.CPU.Milli != 2000 {
		t.Errorf("%+v", load)
	}
}

// TestMeterLongUptime: cpuacct.usage of many CPUs passes 2^63 ns after months.
func TestMeterLongUptime(t *testing.T) {
	n := newFakeNode(t, cgroup.V1, "batch")
	n.pod("batch", used{nanos: 1<<63 - 250e6})
	n.after(0)
	n.pod("batch", used{nanos: 1<<63 + 250e6})
	if got := n.after(time.Second).Pod("batch").CPU; got.Milli != 500 {
		t.Errorf("%+v", got)
	}
}

// TestMeterTurns checks that pods that are not followed closely have their memory read every fifth time, and that each
// measurement costs the same.
func TestMeterTurns(t *testing.T) {
	n := newFakeNode(t, cgroup.V2, "a", "b", "batch", "c", "d", "e", "f", "g", "h", "i", "j")
	n.after(0)
	n.after(time.Second)
	read := map[string]int{}
	for range 20 {
		load := n.after(time.Second)
		now := 0
		for _, p := range load.Pods {
			if p.Memory.At == n.boot {
				read[p.UID]++
				now++
			}
			if p.CPU.At != n.boot {
				t.Errorf("%s: CPU at %s", p.UID, p.CPU.At)
			}
		}
		if now < 2 || now > 4 {
			t.Errorf("the memory of %d pods was read", now)
		}
	}
	for uid := range n.pods {
		if want := map[bool]int{true: 20, false: 4}[uid == "batch"]; read[uid] != want {
			t.Errorf("%s was read %d times, want %d", uid, read[uid], want)
		}
	}
}

// TestMeterDescriptors checks that no more files are kept open than allowed, whoever comes and goes, and that those are
// measured too whose files are not.
func TestMeterDescriptors(t *testing.T) {
	bothVersions(t, func(t *testing.T, v cgroup.Version) {
		n := newFakeNode(t, v, "a", "b", "batch1", "batch2", "c")
		n.pressure()
		n.meter.limit = 6 + 3*n.meter.perPod + 3*n.meter.perPod
		ages := map[string]time.Duration{}
		for i := range 30 {
			for uid := range n.pods {
				n.pod(uid, used{nanos: uint64(i) * 100e6})
			}
			load := n.after(time.Second)
			if n.meter.reader.held > n.meter.limit {
				t.Fatalf("%d files are open", n.meter.reader.held)
			}
			for _, p := range load.Pods {
				if i >= 10 {
					ages[p.UID] = max(ages[p.UID], load.Age(p.CPU.At))
				}
				if i > 0 && p.CPU.Milli != 100 {
					t.Errorf("%s: %+v", p.UID, p.CPU)
				}
			}
		}
		if ages["a"] != 0 || ages["batch1"] != 0 || ages["batch2"] != 0 || ages["b"] != 3*time.Second ||
			ages["c"] != 3*time.Second {
			t.Errorf("ages: %v", ages)
		}
		// The busiest are followed closely, once the set of pods changes.
		n.pod("c", used{nanos: 60e9})
		n.after(time.Second)
		delete(n.pods, "b")
		n.after(time.Second)
		n.after(time.Second)
		for _, p := range n.after(time.Second).Pods {
			if want := p.UID != "a"; (p.CPU.At == n.boot) != want {
				t.Errorf("%s was measured at %v, now is %v", p.UID, p.CPU.At, n.boot)
			}
		}
		n.pods = map[string]model.PodGroup{"c": n.pods["c"]}
		n.after(time.Second)
		if got := n.after(time.Second).Pods; len(got) != 1 || got[0].CPU.At != n.boot {
			t.Errorf("%+v", got)
		}
		open := n.meter.reader.held
		n.meter.Close()
		if n.meter.reader.held != 0 || open > 6+4*n.meter.perPod {
			t.Errorf("%d files were open, %d are", open, n.meter.reader.held)
		}
	})
}

// TestMeterMissing: what this kernel does not have is no error, once or every second.
func TestMeterMissing(t *testing.T) {
	bothVersions(t, func(t *testing.T, v cgroup.Version) {
		n := newFakeNode(t, v, "a", "b")
		n.mount.Memory = ""
		n.start()
		err := filepath.WalkDir(filepath.Dir(n.proc), func(path string, _ fs.DirEntry, err error) error {
			if base := filepath.Base(path); err == nil &&
				(strings.HasSuffix(base, ".pressure") || base == "cpu.stat" && v == cgroup.V1) {
				return os.Remove(path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		for range 10 {
			n.after(time.Second)
		}
		n.pressure() // the node has it, but no group
		for range 10 {
			n.after(time.Second)
		}
		load := n.after(time.Second)
		if p := load.Pod("a"); p.CPU.At != n.boot || p.Memory.At != 0 || p.Pressure.At != 0 ||
			load.Node.Pressure.At != n.boot {
			t.Errorf("%+v", load)
		}
		if err := os.RemoveAll(filepath.Join(n.mount.Path, n.pods["a"].Dir)); err != nil {
			t.Fatal(err)
		}
		n.after(time.Second) // it vanished before anybody could say so
	})
}

// TestMeterUnreadable: what cannot be read keeps its old values and their time, and is told; the rest is measured.
func TestMeterUnreadable(t *testing.T) {
	n := newFakeNode(t, cgroup.V2, "a", "b")
	n.after(0)
	was := n.after(time.Second).Pod("a").Usage
	n.file(filepath.Join(n.mount.Path, n.pods["a"].Dir, "cpu.stat"), "nonsense\n")
	n.file(filepath.Join(n.proc, "stat"), "")
	n.boot, n.mono = n.boot+time.Second, n.mono+time.Second
	load, err := n.meter.Measure(n.pods, nil)
	if err == nil || !strings.Contains(err.Error(), "poda/cpu.stat") || !strings.Contains(err.Error(), "proc/stat") {
		t.Errorf("%v", err)
	}
	if load.Pod("a").CPU != was.CPU || load.Node.CPU.At != n.boot-time.Second || load.Pod("b").CPU.At != n.boot {
		t.Errorf("%+v", load)
	}
}

// TestMeterLargeFiles: /proc/stat of a machine with many interrupts and /proc/zoneinfo of one with many CPUs are larger
// than any buffer that is large enough for most.
func TestMeterLargeFiles(t *testing.T) {
	n := newFakeNode(t, cgroup.V2)
	stat, err := os.ReadFile(filepath.Join(n.proc, "stat"))
	if err != nil {
		t.Fatal(err)
	}
	n.file(filepath.Join(n.proc, "stat"),
		strings.Replace(string(stat), "procs_running", "intr"+strings.Repeat(" 0", 50_000)+"\nprocs_running", 1))
	n.file(filepath.Join(n.proc, "zoneinfo"), strings.Repeat(procZoneinfo, 500))
	if load := n.after(0); load.Runnable != 3 || load.Watermark != 500*17522*int64(unix.Getpagesize()) {
		t.Errorf("%+v", load)
	}
}

// TestMeterNew: which pods are new is said once, and not of those that were there before it was first measured.
func TestMeterNew(t *testing.T) {
	n := newFakeNode(t, cgroup.V2, "batch", "old")
	isNew := func(load *model.Load) (uids string) {
		for i := range load.Pods {
			if load.Pods[i].New {
				uids += load.Pods[i].UID + " "
			}
		}
		return uids
	}
	add := func(uid string) {
		n.pods[uid] = model.PodGroup{Dir: n.layout.Pod(model.Burstable, uid), Inode: 77}
		n.pod(uid, used{})
	}
	if got := isNew(n.after(0)); got != "" {
		t.Errorf("at first %sare new", got)
	}
	add("new")
	if got := isNew(n.after(time.Second)); got != "new " {
		t.Errorf("%q are new", got)
	}
	add("newer")
	if got := isNew(n.after(time.Second)); got != "newer " {
		t.Errorf("a second later %q are new", got)
	}
	if got := isNew(n.after(time.Second)); got != "" {
		t.Errorf("at last %q are new", got)
	}
}

// TestMeterJump checks that a counter of pressure that jumps, as those of some kernels do, is a gap and no stall.
func TestMeterJump(t *testing.T) {
	n := newFakeNode(t, cgroup.V2, "batch")
	n.pressure()
	u := used{nanos: 1e9, stall: time.Second}
	n.pod("batch", u)
	n.after(0)
	for _, step := range []struct{ stall, want time.Duration }{
		{100 * time.Millisecond, 100}, {4295 * time.Millisecond, 100}, {200 * time.Millisecond, 200},
	} {
		u.nanos, u.stall = u.nanos+500e6, u.stall+step.stall
		n.pod("batch", u)
		if got := n.after(time.Second).Pod("batch"); got.Pressure.Memory.Some != int64(step.want) || got.CPU.Milli != 500 {
			t.Errorf("after a stall of %s: %+v", step.stall, got.Usage)
		}
	}
}
