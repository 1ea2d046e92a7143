package host

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// task sets for how long a task has waited. Its process is of a pod, as far as its cgroup tells.
func (n *fakeNode) task(pid, tid int, group string, waited time.Duration) {
	n.t.Helper()
	dir := filepath.Join(n.proc, fmt.Sprint(pid))
	n.file(filepath.Join(dir, "cgroup"), fmt.Sprintf("5:cpuset:/../../%[1]s\n4:cpu,cpuacct:/../../%[1]s\n", group))
	n.file(filepath.Join(dir, "task", fmt.Sprint(tid), "schedstat"), fmt.Sprintf("123456789 %d 77\n", waited.Nanoseconds()))
}

func (n *fakeNode) ends(path ...string) {
	n.t.Helper()
	if err := os.RemoveAll(filepath.Join(append([]string{n.proc}, path...)...)); err != nil {
		n.t.Fatal(err)
	}
}

// TestMeterDelay: how long the tasks of a pod waited is added up over all that were there before, once in five measurements.
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
	measured := func() (all []model.Delay) {
		for range seldom {
			load := n.after(time.Second)
			if d := load.Pod("waits").Delay; d.At == n.boot {
				all = append(all, d)
			}
			if d := load.Pod("other").Delay; d.At != 0 {
				t.Errorf("nobody asked for %+v", d)
			}
		}
		return all
	}
	n.after(0)
	if all := measured(); len(all) != 0 {
		t.Errorf("the first look shows %+v", all)
	}
	waited += 500 * time.Millisecond
	two()
	if all := measured(); len(all) != 1 || all[0].Permille != 150 {
		t.Errorf("750 ms of 5 s: %+v", all)
	}

	// One ends, one is new, which is asked and does not count yet.
	n.ends("100", "task", "101")
	waited += 250 * time.Millisecond
	n.task(100, 100, dir, waited)
	n.task(100, 102, dir, time.Hour)
	if all := measured(); len(all) != 1 || all[0].Permille != 50 {
		t.Errorf("250 ms of 5 s: %+v", all)
	}
	n.task(100, 102, dir, time.Hour+time.Minute)
	if all := measured(); len(all) != 1 || all[0].Permille != 1000 {
		t.Errorf("more than all the time: %+v", all)
	}

	// Without any process nothing is known, and what was known keeps its time.
	before := n.meter.Load().Pod("waits").Delay
	n.ends("100")
	if all := measured(); len(all) != 0 || n.meter.Load().Pod("waits").Delay != before {
		t.Errorf("of no process: %+v", all)
	}
	two()
	for _, d := range append(measured(), measured()...) { // they are found in the first, and asked in the second at the latest
		if d.Permille != 0 {
			t.Errorf("of new ones: %+v", d)
		}
	}
	waited += 500 * time.Millisecond
	two()
	if all := measured(); len(all) != 1 || all[0].Permille != 150 {
		t.Errorf("750 ms of 5 s: %+v", all)
	}
}

// TestMeterDelayMostTasks: what cannot be asked in one go is not known, rather than too little.
func TestMeterDelayMostTasks(t *testing.T) {
	n := newFakeNode(t, cgroup.V1, "waits")
	for i := range 2 * seldom {
		for tid := range mostTasks + 1 {
			if i%seldom == 0 {
				n.task(100, 100+tid, n.pods["waits"].Dir+"/0123456789ab", time.Duration(i)*time.Second)
			}
		}
		if d := n.after(time.Second).Pod("waits").Delay; d.At != 0 {
			t.Fatalf("%d tasks: %+v", mostTasks+1, d)
		}
	}
}
