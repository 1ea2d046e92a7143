package host

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// task sets for how long a task has waited, which runs now. Its process is of a pod, as far as its cgroup tells.
func (n *fakeNode) task(pid, tid int, group string, waited time.Duration) {
	n.t.Helper()
	n.run(group)
	dir := filepath.Join(n.proc, fmt.Sprint(pid))
	n.file(filepath.Join(dir, "cgroup"), fmt.Sprintf("5:cpuset:/../../%[1]s\n4:cpu,cpuacct:/../../%[1]s\n", group))
	n.file(filepath.Join(dir, "task", fmt.Sprint(tid), "schedstat"),
		fmt.Sprintf("123456789 %d 77\n", waited.Nanoseconds()))
}

// run lets somebody in a pod's group run for a moment.
func (n *fakeNode) run(group string) {
	n.ran++
	for uid, p := range n.pods {
		if strings.HasPrefix(group, p.Dir+"/") {
			n.pod(uid, used{nanos: n.ran * uint64(time.Microsecond)})
		}
	}
}

// ends lets a process end, or a task of it, which runs for that.
func (n *fakeNode) ends(path ...string) {
	n.t.Helper()
	for uid := range n.pods {
		n.run(n.pods[uid].Dir + "/")
	}
	if err := os.RemoveAll(filepath.Join(append([]string{n.proc}, path...)...)); err != nil {
		n.t.Fatal(err)
	}
}

// delays measures as often as a pod is asked once, and returns what was found meanwhile.
func (n *fakeNode) delays(uid string) (all []model.Delay) {
	n.t.Helper()
	for range everyOther {
		if d := n.after(time.Second).Pod(uid).Delay; d.At == n.boot {
			all = append(all, d)
		}
	}
	return all
}

// delay is delays where there is one.
func (n *fakeNode) delay(uid string) model.Delay {
	n.t.Helper()
	all := n.delays(uid)
	if len(all) != 1 {
		n.t.Fatalf("%d delays: %+v", len(all), all)
	}
	return all[0]
}

// found measures until all processes that there are were found and asked.
func (n *fakeNode) found() {
	n.t.Helper()
	for range seldom + everyOther {
		n.after(time.Second)
	}
}

// TestMeterDelay: how long the tasks of a pod waited is added up over all that were there before, in every other
// measurement.
func TestMeterDelay(t *testing.T) {
	n := newFakeNode(t, cgroup.V1, "waits", "other")
	dir := n.pods["waits"].Dir + "/0123456789ab"
	waited := 10 * time.Second
	two := func() {
		n.task(100, 100, dir, waited)
		n.task(100, 101, dir, waited/2)
		n.task(200, 200, n.pods["other"].Dir+"/0123456789ab", 7*waited)
		n.task(1, 1, "system.slice/containerd.service", 9*waited)
	}
	two()
	n.found()
	if d := n.meter.Load().Pod("waits").Delay; d.At == 0 || d.Permille != 0 {
		t.Errorf("what they waited before counts: %+v", d)
	}
	waited += 200 * time.Millisecond
	two()
	if d := n.delay("waits"); d.Permille != 150 {
		t.Errorf("300 ms of 2 s: %+v", d)
	}
	if d := n.meter.Load().Pod("other").Delay; d.At != 0 {
		t.Errorf("nobody asked for %+v", d)
	}

	// One ends, one is new, which is asked and does not count yet.
	n.ends("100", "task", "101")
	waited += 100 * time.Millisecond
	n.task(100, 100, dir, waited)
	n.task(100, 102, dir, time.Hour)
	if d := n.delay("waits"); d.Permille != 50 {
		t.Errorf("100 ms of 2 s: %+v", d)
	}

	// Without any process nothing is known, and what was known keeps its time.
	before := n.meter.Load().Pod("waits").Delay
	n.ends("100")
	if all := n.delays("waits"); len(all) != 0 || n.meter.Load().Pod("waits").Delay != before {
		t.Errorf("of no process: %+v", all)
	}
	for range seldom { // its directory is made anew: on some file systems it has the same inode again
		n.after(time.Second)
	}
	two()
	n.found()
	if d := n.meter.Load().Pod("waits").Delay; d.Permille != 0 {
		t.Errorf("of new ones: %+v", d)
	}
	waited += 200 * time.Millisecond
	two()
	if d := n.delay("waits"); d.Permille != 150 {
		t.Errorf("300 ms of 2 s: %+v", d)
	}
}

// TestMeterDelayLumps: the kernel tells what a task waited for when that ends, and nothing of it is lost, nor told of
// other tasks, nor of times long past.
func TestMeterDelayLumps(t *testing.T) {
	n := newFakeNode(t, cgroup.V1, "waits")
	dir := n.pods["waits"].Dir + "/0123456789ab"
	var first, second time.Duration
	add := func(one, other time.Duration) model.Delay {
		first, second = first+one, second+other
		n.task(100, 100, dir, first)
		n.task(100, 101, dir, second)
		return n.delay("waits")
	}
	n.task(100, 100, dir, 0)
	n.task(100, 101, dir, 0)
	n.found()
	for i, c := range []struct {
		one, other time.Duration
		want       int64
	}{
		{0, 0, 0},
		{3700 * time.Millisecond, 0, 1000},
		{0, 0, 850},
		{0, 100 * time.Millisecond, 50},
		{2500 * time.Millisecond, 0, 1000}, // more than the time between
		{500 * time.Millisecond, 0, 500},   // the rest of it, and what is new
		{1500 * time.Millisecond, 1500 * time.Millisecond, 1000}, // at once is no more than all the time, and no rest
		{0, 0, 0},
		{time.Hour, 0, 1000}, // maxCarried of it afterwards
		{0, 0, 1000},
		{0, 0, 1000},
		{0, 0, 500},
		{0, 0, 0},
	} {
		if d := add(c.one, c.other); d.Permille != c.want {
			t.Errorf("%d: %s and %s more: %+v, want %d", i, c.one, c.other, d, c.want)
		}
	}

	// What is owed over a time in which nobody looked is not of now, whether or not the pod is asked first thing after it.
	for late := range time.Duration(everyOther) {
		add(4*time.Second, 0)
		n.after(late * time.Second)
		for _, after := range []time.Duration{2 * maxInterval, time.Second, time.Second, time.Second} {
			if d := n.after(after).Pod("waits").Delay; d.At == n.boot && d.Permille != 0 {
				t.Errorf("after a gap: %+v", d)
			}
		}
	}
}

// TestMeterDelayAsleep: a pod in which nobody ran is not asked, and nothing of what it then tells, or still owes, is
// lost.
func TestMeterDelayAsleep(t *testing.T) {
	n := newFakeNode(t, cgroup.V1, "waits")
	dir := n.pods["waits"].Dir + "/0123456789ab"
	n.task(100, 100, dir, 0)
	n.found()
	waits := func(waited time.Duration) { // without having run
		n.file(filepath.Join(n.proc, "100", "task", "100", "schedstat"), fmt.Sprintf("1 %d 77\n", waited.Nanoseconds()))
	}
	waits(time.Second)
	if d := n.delay("waits"); d.Permille != 0 {
		t.Errorf("nobody ran: %+v", d)
	}
	n.run(dir)
	if d := n.delay("waits"); d.Permille != 500 {
		t.Errorf("somebody ran, and waited for 1 s of 2 s: %+v", d)
	}
	waits(6 * time.Second)
	n.run(dir)
	for i, want := range []int64{1000, 1000, 500, 0} {
		if d := n.delay("waits"); d.Permille != want {
			t.Errorf("%d: of 5 s in one lump: %+v, want %d", i, d, want)
		}
	}
}

// TestMeterDelayStopped: how often its quota stopped a pod is of the same time, not of its last second.
func TestMeterDelayStopped(t *testing.T) {
	n := newFakeNode(t, cgroup.V1, "waits")
	n.task(100, 100, n.pods["waits"].Dir+"/0123456789ab", time.Second)
	u := used{}
	for i := range uint64(6 * everyOther) {
		u.nanos, u.periods = u.nanos+300e6, u.periods+10
		if i%everyOther == 0 {
			u.throttled += 10
		}
		n.pod("waits", u)
		if d := n.after(time.Second).Pod("waits").Delay; d.At == n.boot && d.Stopped != 500 {
			t.Errorf("%d: stopped in every other second: %+v", i, d)
		}
	}
	if d := n.meter.Load().Pod("waits").Delay; d.At == 0 {
		t.Error("nothing was measured")
	}
}

// TestMeterDelayEnters: a process that is found before it has entered its pod's group is of the pod all the same.
func TestMeterDelayEnters(t *testing.T) {
	n := newFakeNode(t, cgroup.V1, "waits")
	n.task(100, 100, "system.slice/containerd.service", time.Second)
	n.found()
	if d := n.meter.Load().Pod("waits").Delay; d.At != 0 {
		t.Errorf("of no process: %+v", d)
	}
	n.task(100, 100, n.pods["waits"].Dir+"/0123456789ab", time.Second)
	n.found()
	n.task(100, 100, n.pods["waits"].Dir+"/0123456789ab", 2*time.Second)
	if d := n.delay("waits"); d.Permille != 500 {
		t.Errorf("1 s of 2 s: %+v", d)
	}
}

// TestMeterDelayMostTasks: what cannot be asked in one go is not known, rather than too little.
func TestMeterDelayMostTasks(t *testing.T) {
	n := newFakeNode(t, cgroup.V1, "waits")
	for tid := range maxTasks + 1 {
		n.task(100, 100+tid, n.pods["waits"].Dir+"/0123456789ab", time.Second)
	}
	for range 2 * seldom {
		if d := n.after(time.Second).Pod("waits").Delay; d.At != 0 {
			t.Fatalf("%d tasks: %+v", maxTasks+1, d)
		}
	}
	n.ends("100", "task", "100")
	n.found()
	if n.meter.Load().Pod("waits").Delay.At == 0 {
		t.Errorf("%d tasks: not known", maxTasks)
	}
	n.task(100, 100, n.pods["waits"].Dir+"/0123456789ab", time.Second)
	if all := n.delays("waits"); len(all) != 0 {
		t.Errorf("%d tasks: %+v", maxTasks+1, all)
	}
}

// TestMeterDelayManyTasks: where pods have more tasks than are asked in one go, each has its turn, whatever comes
// before it, and what it waited since its last one is told then. A pod with too many of its own keeps nobody else
// waiting for good.
func TestMeterDelayManyTasks(t *testing.T) {
	// two of the four pods that come at the same time have their turn
	const each, pods, rate = 400, 8, 100 * time.Millisecond
	waits := []string{"waits-huge"}
	for i := range pods {
		waits = append(waits, fmt.Sprintf("waits-%d", i))
	}
	n := newFakeNode(t, cgroup.V1, waits...)
	group := func(uid string) string { return n.pods[uid].Dir + "/0123456789ab" }
	for i, uid := range waits {
		some := each
		if uid == "waits-huge" {
			some = maxTasks + 1
		}
		for tid := range some {
			n.task(100+i, 10000*i+tid, group(uid), time.Second)
		}
	}
	told := map[string]int{}
	for second := range time.Duration(24) {
		for i, uid := range waits { // one task of each waits for a tenth of the time
			n.task(100+i, 10000*i, group(uid), time.Second+second*rate)
		}
		load := n.after(time.Second)
		for _, uid := range waits {
			if d := load.Pod(uid).Delay; d.At == n.boot && second >= 12 {
				if told[uid]++; d.Permille != 100 {
					t.Errorf("%s waits for %+v", uid, d)
				}
			}
		}
	}
	for _, uid := range waits {
		if times := told[uid]; (times < 2) != (uid == "waits-huge") {
			t.Errorf("%s was told %d times in 12 s", uid, times)
		}
	}
}

// BenchmarkMeterDelay measures what it costs to ask real tasks: 220 processes of one task, as of 110 pods with two
// containers, half of them a measurement; those of one process with 200 tasks; and to find the processes that there
// are, all new and all known.
func BenchmarkMeterDelay(b *testing.B) {
	const pods, each, threads = 110, 2, 200
	fresh := func() *delays {
		layout := cgroup.Layout{Driver: cgroup.Cgroupfs, Root: "kubepods"}
		d := &delays{processes: processes{proc: DefaultProc, layout: layout}}
		if err := d.find(1); err != nil {
			b.Fatal(err)
		}
		return d
	}
	d := fresh()
	for i := range pods * each {
		cmd := exec.Command("sleep", "600")
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		pod := fmt.Sprint(i / each)
		d.pods[pod] = append(d.pods[pod], &process{
			dir: fmt.Sprintf("%s/%d", DefaultProc, cmd.Process.Pid), tasks: map[int]delayedTask{},
		})
	}
	ask := func(b *testing.B, tick int64, uid string) {
		if _, _, asked := d.waitedSince(uid, time.Second, tick); !asked {
			b.Fatalf("pod %s: no task", uid)
		}
	}
	b.Run("pods", func(b *testing.B) {
		for i := range int64(b.N) {
			d.budget = maxTasks
			for pod := i % everyOther; pod < pods; pod += everyOther {
				ask(b, i, fmt.Sprint(pod))
			}
		}
	})
	b.Run("threads", func(b *testing.B) {
		end, begun := make(chan struct{}), make(chan struct{})
		defer close(end)
		for range threads {
			go func() { runtime.LockOSThread(); begun <- struct{}{}; <-end }()
			<-begun
		}
		d.pods["self"] = []*process{{dir: DefaultProc + "/self", tasks: map[int]delayedTask{}}}
		for i := range int64(b.N) {
			d.budget = maxTasks
			ask(b, i, "self")
		}
		b.ReportMetric(float64(len(d.pods["self"][0].tasks)), "tasks")
	})
	b.Run("find-new", func(b *testing.B) {
		for range b.N {
			d = fresh()
		}
		b.ReportMetric(float64(len(d.known)), "processes")
	})
	b.Run("find-known", func(b *testing.B) {
		for i := range int64(b.N) {
			if err := d.find(i + 2); err != nil {
				b.Fatal(err)
			}
		}
	})
}
