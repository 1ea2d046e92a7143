//go:build bench

package kernel_test

import (
	"fmt"
	"math"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

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

// TestMeterAge checks how old the figures are that a measurement of 500 pods returns.
func TestMeterAge(t *testing.T) {
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
		took := time.Since(began)
		for _, p := range load.Pods {
			if age := load.Age(p.CPU.At); i > 0 && age > 2*time.Second && age > 2*took {
				t.Fatalf("the CPU time of %s was read %v ago; a measurement takes %v", p.UID, age, took)
			}
			if age := load.Age(p.Memory.At); i > 0 && p.Memory.At != 0 && age > 2*time.Second && age > 2*took {
				t.Fatalf("the memory of %s was read %v ago; a measurement takes %v", p.UID, age, took)
			}
		}
		t.Logf("a measurement of %d pods took %v", count, took)
		time.Sleep(time.Second)
	}
}
