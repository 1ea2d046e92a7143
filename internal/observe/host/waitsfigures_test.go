//go:build bench

package host

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/internal/model"
)

// busyThreads makes the test program a process of a pod.
const busyThreads = "WATERLINE_BUSY_THREADS"

// TestWaitsThread runs as the processes of [TestWaitsFigures]: of 16 threads, one runs for a moment twice a second.
func TestWaitsThread(t *testing.T) {
	if os.Getenv(busyThreads) == "" {
		t.Skip("it is a process of another test")
	}
	for i := range tasksOfPod {
		go func() {
			runtime.LockOSThread()
			for {
				pause := unix.NsecToTimespec(int64(time.Hour))
				if i == 0 {
					for begin := time.Now(); time.Since(begin) < 2*time.Millisecond; {
					}
					pause = unix.NsecToTimespec(int64(500 * time.Millisecond))
				}
				_ = unix.Nanosleep(&pause, nil)
			}
		}()
	}
	select {}
}

// TestWaitsFigures measures how old samples get, and what sampling costs, with 110 and 250 busy pods of 16 tasks.
func TestWaitsFigures(t *testing.T) {
	const (
		mostAge  = 1200 * time.Millisecond
		mostCost = 4.0 // milli-cores
		settles  = 40 * time.Second
		lasts    = 30 * time.Second
	)
	w := newLiveWaits()
	t.Cleanup(w.Close)
	var marks []model.WaitMark
	for _, pods := range []int{110, 250} {
		for i := len(marks); i < pods; i++ {
			cmd := exec.Command("/proc/self/exe", "-test.run=^TestWaitsThread$", "-test.timeout=0")
			cmd.Env = append(os.Environ(), busyThreads+"=1", "GOMAXPROCS=2")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
			uid := fmt.Sprintf("pod-%03d", i)
			marks = append(marks, model.WaitMark{PodWait: model.PodWait{UID: uid}})
			var is unix.Stat_t
			if err := unix.Stat(filepath.Join(DefaultProc, fmt.Sprint(cmd.Process.Pid)), &is); err != nil {
				t.Fatal(err)
			}
			w.adopt(uid, cmd.Process.Pid)
			w.find.known[cmd.Process.Pid] = process{inode: uint32(is.Ino), pod: w.find.numberOf(uid)}
		}
		runtime.LockOSThread()
		var began, used, took time.Duration
		var ages, costs []time.Duration
		for begin := SinceBoot(); ; {
			before := threadTime(t)
			if err := w.Sample(marks); err != nil {
				t.Fatal(err)
			}
			cost, now := threadTime(t)-before, SinceBoot()
			if now-begin >= settles {
				if began == 0 {
					began = now
				}
				used += cost
				costs = append(costs, cost)
				for _, p := range w.Append(nil) {
					ages = append(ages, now-p.At)
				}
			}
			if now-begin >= settles+lasts {
				took = now - began
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		runtime.UnlockOSThread()
		slices.Sort(ages)
		slices.Sort(costs)
		p99, oldest, longest := ages[len(ages)*99/100], ages[len(ages)-1], costs[len(costs)-1]
		milli := float64(used) / float64(took) * 1000
		n := w.Sampled()
		t.Logf("%d pods of %d tasks and more, %d files open, %+v: a sample is %s old at the 99th percentile, %s at most; "+
			"sampling costs %.1f mCPU, one sample at most %s, over %s",
			pods, tasksOfPod, w.open, n, p99.Round(time.Millisecond), oldest.Round(time.Millisecond), milli, longest,
			took.Round(time.Second))
		if n.None > 0 {
			t.Errorf("%d pods are not sampled", n.None)
		}
		if p99 > mostAge {
			t.Errorf("samples are %s old at the 99th percentile, want %s", p99, mostAge)
		}
		if milli > mostCost {
			t.Errorf("sampling costs %.1f mCPU, want %.1f", milli, mostCost)
		}
	}
}

// TestSystemFigures measures what sampling the node's own services costs with all files that may be open. Kubelets and
// container runtimes are real for the sampler. The other two groups have tasks of theirs, because nobody can begin
// kernel threads or units here; filling their places is not measured.
func TestSystemFigures(t *testing.T) {
	const (
		settles = 30
		lasts   = 60
	)
	if os.Getuid() != 0 {
		t.Skip("processes of root count")
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	dir, pids := t.TempDir(), []int{}
	for name, processes := range map[string]int{"kubelet": 5, "containerd-shim": 20} {
		program := filepath.Join(dir, name)
		if err := os.WriteFile(program, self, 0o755); err != nil {
			t.Fatal(err)
		}
		for range processes {
			cmd := exec.Command(program, "-test.run=^TestWaitsThread$", "-test.timeout=0")
			cmd.Env = append(os.Environ(), busyThreads+"=1", "GOMAXPROCS=2")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
			pids = append(pids, cmd.Process.Pid)
		}
	}
	s := newSystem(liveLayout, DefaultProc)
	t.Cleanup(s.close)
	marks := []model.WaitMark{{PodWait: model.PodWait{UID: model.SystemKernel}}}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var costs []time.Duration
	var used time.Duration
	for second := range settles + lasts {
		for _, group := range []int{kernelGroup, servicesGroup} {
			for _, pid := range pids {
				s.listTasks(&s.groups[group], pid) // fills the places, at no cost
			}
		}
		before := threadTime(t)
		s.sample(marks, SinceBoot())
		if cost := threadTime(t) - before; second >= settles {
			costs, used = append(costs, cost), used+cost
		}
		time.Sleep(time.Second)
	}
	files := 0
	for i := range s.groups {
		files += len(s.groups[i].tasks)
	}
	slices.Sort(costs)
	t.Logf("%d files open: sampling costs %.2f mCPU, a sample %s at the median, %s at most", files,
		float64(used)/float64(lasts*time.Second)*1000, costs[len(costs)/2], costs[len(costs)-1])
	if want := len(s.groups) * systemTasks; files != want {
		t.Errorf("%d files are open, want %d", files, want)
	}
}

// threadTime returns the CPU time of this thread.
func threadTime(t *testing.T) time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now); err != nil {
		t.Fatal(err)
	}
	return time.Duration(now.Nano())
}
