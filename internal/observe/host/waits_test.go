package host

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/poll"
)

// waits is a sampler of a fake node.
type waits struct {
	*fakeNode
	w     *Waits
	marks []model.WaitMark
}

func newWaits(t *testing.T, pods ...string) *waits {
	t.Helper()
	n := newFakeNode(t, cgroup.V2, pods...)
	w := &waits{fakeNode: n, w: NewWaits(n.mount, n.layout, n.proc)}
	w.w.clock = func(int32) time.Duration { return n.boot }
	t.Cleanup(w.w.Close)
	for _, uid := range pods {
		w.marks = append(w.marks, model.WaitMark{PodWait: model.PodWait{UID: uid}})
	}
	return w
}

// runs sets for how long a task of a pod has run and waited in its life, in milliseconds.
func (w *waits) runs(uid string, pid, tid int, ran, waited int64) {
	w.t.Helper()
	dir := filepath.Join(w.proc, fmt.Sprint(pid))
	w.file(filepath.Join(dir, "cgroup"), "0::/../../"+w.pods[uid].Dir+"/cri-0123.scope\n")
	w.file(filepath.Join(dir, "task", fmt.Sprint(tid), "schedstat"), fmt.Sprintf("%d %d 7\n", ran*1e6, waited*1e6))
}

// exits lets a task end: its file reads nothing any more.
func (w *waits) exits(pid, tid int) {
	w.t.Helper()
	w.file(filepath.Join(w.proc, fmt.Sprint(pid), "task", fmt.Sprint(tid), "schedstat"), "")
	if err := os.RemoveAll(filepath.Join(w.proc, fmt.Sprint(pid), "task", fmt.Sprint(tid))); err != nil {
		w.t.Fatal(err)
	}
}

// sample samples after some time, and returns what was sampled of a pod, in milliseconds.
func (w *waits) sample(after time.Duration, uid string) (ran, waited int64, age time.Duration) {
	w.t.Helper()
	w.boot += after
	if err := w.w.Sample(w.marks); err != nil {
		w.t.Fatal(err)
	}
	s := model.FindWait(w.w.Append(nil), uid)
	if s == nil {
		w.t.Fatalf("%s is not sampled", uid)
	}
	return s.Ran.Milliseconds(), s.Waited.Milliseconds(), w.boot - s.At
}

func (w *waits) want(name string, after time.Duration, uid string, ran, waited int64) {
	w.t.Helper()
	if r, d, age := w.sample(after, uid); r != ran || d != waited || age != 0 {
		w.t.Errorf("%s: ran %d ms and waited %d ms, %s ago; want %d and %d, now", name, r, d, age, ran, waited)
	}
}

const tenth = 100 * time.Millisecond

// TestWaits checks that the time of all tasks of a pod counts from the moment when they were found.
func TestWaits(t *testing.T) {
	w := newWaits(t, "other", "web")
	w.runs("web", 100, 100, 5000, 900)
	w.runs("web", 100, 101, 5000, 900)
	w.runs("other", 200, 200, 7000, 7000)
	w.want("first", 0, "web", 0, 0)
	w.runs("web", 100, 100, 5030, 910)
	w.runs("web", 100, 101, 5010, 900)
	w.want("both ran", tenth, "web", 40, 10)
	w.want("none ran", tenth, "web", 40, 10)
	w.runs("web", 100, 102, 3000, 3000)
	w.runs("web", 300, 300, 3000, 3000)
	w.want("a task and a process began", tenth, "web", 40, 10)
	w.want("they were found", relist, "web", 40, 10)
	w.runs("web", 100, 102, 3000, 3005)
	w.runs("web", 300, 300, 3001, 3000)
	w.want("they wait", tenth, "web", 41, 15)
	w.exits(100, 101)
	w.runs("web", 100, 100, 5050, 910)
	w.want("one ended", tenth, "web", 61, 15)
	for pid, tid := range map[int]int{300: 300, 100: 102} {
		w.exits(pid, tid)
	}
	w.exits(100, 100)
	if ran, waited, age := w.sample(tenth, "web"); ran != 61 || waited != 15 || age == 0 {
		t.Errorf("all ended: %d, %d, %s ago", ran, waited, age)
	}
	if ran, waited, _ := w.sample(tenth, "other"); ran != 0 || waited != 0 {
		t.Errorf("the other pod: %d, %d", ran, waited)
	}
}

// TestWaitsNewPod checks that a pod that begins is sampled within two seconds, also if its process is found before it
// has entered the pod's group.
func TestWaitsNewPod(t *testing.T) {
	w := newWaits(t, "web")
	w.file(filepath.Join(w.proc, "100", "cgroup"), "0::/system.slice/containerd.service\n")
	w.file(filepath.Join(w.proc, "100", "task", "100", "schedstat"), "1000 1000 1\n")
	w.sample(tenth, "web")
	w.runs("web", 100, 100, 1, 1)
	for range 11 {
		w.sample(tenth, "web")
	}
	w.runs("web", 100, 100, 9, 3)
	w.want("it runs", tenth, "web", 8, 2)
}

// TestWaitsLate checks that a process that enters its pod's group late is sampled from then on.
func TestWaitsLate(t *testing.T) {
	w := newWaits(t, "web")
	w.runs("web", 100, 100, 1, 1)
	w.want("one is there", tenth, "web", 0, 0)
	w.file(filepath.Join(w.proc, "200", "cgroup"), "0::/system.slice/containerd.service\n")
	w.file(filepath.Join(w.proc, "200", "task", "200", "schedstat"), "1000000 1000000 1\n")
	for range 3 {
		w.want("another one is outside", 2*relist, "web", 0, 0)
	}
	w.runs("web", 200, 200, 1, 1)
	w.want("it enters", relist, "web", 0, 0)
	w.runs("web", 200, 200, 4, 3)
	w.want("it runs", tenth, "web", 3, 2)
}

// TestWaitsLumps checks that a wait counts whole and once when it ends, however long it was.
func TestWaitsLumps(t *testing.T) {
	w := newWaits(t, "web")
	first, second, sum := int64(500), int64(900), int64(0)
	w.runs("web", 100, 100, 10, first)
	w.runs("web", 100, 101, 10, second)
	w.want("found", tenth, "web", 0, 0)
	for i, lump := range []struct{ one, other int64 }{
		{0, 0}, {3700, 0}, {0, 0}, {0, 100}, {2500, 0}, {1500, 1500}, {3600e3, 0}, {0, 1},
	} {
		first, second, sum = first+lump.one, second+lump.other, sum+lump.one+lump.other
		w.runs("web", 100, 100, 10, first)
		w.runs("web", 100, 101, 10, second)
		w.want(fmt.Sprintf("lump %d", i), tenth, "web", 0, sum)
	}

	// Another task has the number now, and counts from here on.
	w.runs("web", 100, 100, 1, 5)
	w.want("a counter went backwards", tenth, "web", 0, sum)
	w.runs("web", 100, 100, 2, 7)
	w.want("it counts again", tenth, "web", 1, sum+2)
}

// TestWaitsFollow checks that sums outlive a change of the pods and a pause.
func TestWaitsFollow(t *testing.T) {
	w := newWaits(t, "a", "web")
	w.runs("a", 200, 200, 1, 1)
	w.runs("web", 100, 100, 100, 10)
	w.sample(tenth, "web")
	w.runs("web", 100, 100, 150, 20)
	w.want("it ran", tenth, "web", 50, 10)
	w.marks = w.marks[1:]
	w.runs("web", 100, 100, 160, 20)
	w.want("another pod went", tenth, "web", 60, 10)
	if w.w.open != 1 {
		t.Errorf("%d files are open", w.w.open)
	}
	w.w.Close()
	if w.w.open != 0 {
		t.Errorf("%d files are open after Close", w.w.open)
	}
	w.runs("web", 100, 100, 900, 500)
	if ran, waited, _ := w.sample(time.Minute, "web"); ran != 60 || waited != 10 {
		t.Errorf("a pause counts: %d, %d", ran, waited)
	}
	w.runs("web", 100, 100, 910, 501)
	w.want("it ran again", tenth, "web", 70, 11)
}

// TestWaitsManyTasks checks a pod with more tasks than are sampled: in the end those that run are.
func TestWaitsManyTasks(t *testing.T) {
	w := newWaits(t, "web")
	const tasks = 10 * tasksOfPod
	life := int64(1000)
	for tid := range tasks {
		w.runs("web", 100, 100+tid, life, life)
	}
	busy := []int{3, tasks / 2, tasks - 2} // in any order of the directory, some are beyond the first
	for range 4 * 10 {
		life += 10
		for _, tid := range busy {
			w.runs("web", 100, 100+tid, life, life)
		}
		w.sample(relist, "web")
	}
	before, _, _ := w.sample(tenth, "web")
	life += 10
	for _, tid := range busy {
		w.runs("web", 100, 100+tid, life, life)
	}
	if ran, _, _ := w.sample(tenth, "web"); ran-before != int64(10*len(busy)) {
		t.Errorf("of %d tasks that run, %d ms of 10 each were seen", len(busy), ran-before)
	}
	if w.w.open > tasksOfPod {
		t.Errorf("%d files are open", w.w.open)
	}
}

// TestWaitsManyPods checks that pods that run are read in every sample, and all others in turns.
func TestWaitsManyPods(t *testing.T) {
	const pods, each = 110, 2
	var uids []string
	for i := range pods {
		uids = append(uids, fmt.Sprintf("pod-%03d", i))
	}
	w := newWaits(t, uids...)
	for i, uid := range uids {
		for c := range each {
			w.runs(uid, 1000+each*i+c, 1000+each*i+c, 1, 1)
		}
	}
	for range 100 {
		w.sample(tenth, uids[0])
	}
	for i := range int64(50) {
		w.runs(uids[70], 1140, 1140, 10+10*i, 1)
		if _, _, age := w.sample(tenth, uids[70]); i > 15 && age != 0 {
			t.Fatalf("%d: a pod that runs was read %s ago", i, age)
		}
	}
	for _, uid := range uids {
		if _, _, age := w.sample(0, uid); age > 2*time.Second {
			t.Errorf("%s was read %s ago", uid, age)
		}
	}
	if n := testing.AllocsPerRun(20, func() {
		w.boot += tenth
		if err := w.w.Sample(w.marks); err != nil {
			t.Fatal(err)
		}
	}); n > 1 {
		t.Errorf("%.1f allocations a sample", n)
	}
}

// TestWaitsOnceASecond checks that no pod has to wait longer for its turn if samples are a second apart, also where all
// pods have more tasks than are sampled.
func TestWaitsOnceASecond(t *testing.T) {
	const pods, each = 60, tasksOfPod + 2
	var uids []string
	for i := range pods {
		uids = append(uids, fmt.Sprintf("pod-%03d", i))
	}
	w := newWaits(t, uids...)
	for i, uid := range uids {
		for c := range each {
			w.runs(uid, 1000+i, 100*(1000+i)+c, 1, 1)
		}
	}
	w.sample(time.Second, uids[0])
	w.sample(time.Second, uids[0])
	for _, runs := range []int64{0, 1} {
		for second := range int64(10) {
			w.sample(time.Second, uids[0])
			for i, uid := range uids {
				if s := model.FindWait(w.w.Append(nil), uid); w.boot-s.At > 3*time.Second {
					t.Fatalf("%d, second %d: %s was read %s ago", runs, second, uid, w.boot-s.At)
				}
				for _, task := range w.w.pods[i].tasks[:1] {
					w.runs(uid, 1000+i, task.tid, 1+100*second*runs, 1)
				}
			}
		}
	}
}

// TestWaitsNotMarked checks that only pods with a mark are sampled.
func TestWaitsNotMarked(t *testing.T) {
	w := newWaits(t, "other", "web")
	w.marks = w.marks[1:]
	w.runs("other", 200, 200, 1, 1)
	w.runs("web", 100, 100, 1, 1)
	w.want("found", tenth, "web", 0, 0)
	if all := w.w.Append(nil); len(all) != 1 || w.w.open != 1 {
		t.Errorf("%d files are open for %+v", w.w.open, all)
	}
}

// liveLayout is of pods that no machine has.
var liveLayout = cgroup.Layout{Driver: cgroup.Cgroupfs, Root: "kubepods"}

// newLiveWaits returns a sampler of this machine, which finds no process by itself.
func newLiveWaits() *Waits {
	w := NewWaits(Mount{}, liveLayout, DefaultProc)
	w.find.known, w.find.numbers, w.find.pods = map[int]process{}, map[string]int{}, make([]podProcesses, 1)
	return w
}

// adopt makes a process one of a pod, as if a search had found it.
func (w *Waits) adopt(uid string, pid int) {
	n := w.find.numberOf(uid)
	w.find.pods[n].pids = append(w.find.pods[n].pids, int32(pid))
	w.find.known[pid] = process{pod: n}
}

// TestWaitsLive checks real tasks: of two that share one CPU, one waits while the other runs.
func TestWaitsLive(t *testing.T) {
	w := newLiveWaits()
	t.Cleanup(w.Close)
	var own unix.CPUSet
	if err := unix.SchedGetaffinity(0, &own); err != nil {
		t.Fatal(err)
	}
	var one unix.CPUSet
	for cpu := range 1024 {
		if own.IsSet(cpu) {
			one.Set(cpu)
			break
		}
	}
	marks := []model.WaitMark{{PodWait: model.PodWait{UID: "web"}}}
	w.found = sinceBoot(bootClock)
	for range 2 {
		cmd := exec.Command("sh", "-c", "while :; do :; done")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		if err := unix.SchedSetaffinity(cmd.Process.Pid, &one); err != nil {
			t.Fatal(err)
		}
		w.adopt("web", cmd.Process.Pid)
	}
	var sum model.PodWait
	if !poll.Until(3*time.Minute, tenth, func() bool {
		if err := w.Sample(marks); err != nil {
			t.Fatal(err)
		}
		sum = w.Append(nil)[0]
		return sum.Ran >= 300*time.Millisecond && sum.Waited >= 200*time.Millisecond
	}) {
		t.Errorf("two tasks on one CPU ran for %s and waited for %s", sum.Ran, sum.Waited)
	}
}

// BenchmarkWaits measures a sample of 110 pods of two processes that sleep: as many of them as one sample reads.
func BenchmarkWaits(b *testing.B) {
	const pods, each = 110, 2
	w := newLiveWaits()
	b.Cleanup(w.Close)
	w.found = sinceBoot(bootClock) + time.Hour // it does not search
	w.clock = func(int32) time.Duration { return w.found + time.Millisecond }
	var marks []model.WaitMark
	for i := range pods * each {
		cmd := exec.Command("sleep", "600")
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		uid := fmt.Sprintf("pod-%03d", i/each)
		if i%each == 0 {
			marks = append(marks, model.WaitMark{PodWait: model.PodWait{UID: uid}})
		}
		w.adopt(uid, cmd.Process.Pid)
	}
	b.ReportAllocs()
	for b.Loop() {
		w.found += tenth
		if err := w.Sample(marks); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkWaitsFind measures a search for processes, all of them new or all known.
func BenchmarkWaitsFind(b *testing.B) {
	find := func(f *processes, now time.Duration) {
		for ended := false; !ended; {
			var err error
			if ended, err = f.search(now, 1); err != nil {
				b.Fatal(err)
			}
		}
	}
	fresh := func() *processes {
		f := &processes{procReader: procReader{proc: DefaultProc}, layout: liveLayout, most: mostKnown}
		find(f, time.Second)
		return f
	}
	b.Run("new", func(b *testing.B) {
		for b.Loop() {
			fresh()
		}
		b.ReportMetric(float64(len(fresh().known)), "processes")
	})
	b.Run("known", func(b *testing.B) {
		f := fresh()
		for b.Loop() {
			find(f, 2*entersWithin*time.Second)
		}
		b.ReportMetric(float64(len(f.known)), "processes")
	})
}
