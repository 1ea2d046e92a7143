package node_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/decide/node"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/fixture"
)

// bursting returns a node with room and pods with CPU limits, which has been cool for long enough.
func bursting(t *testing.T, lines ...string) *world {
	t.Helper()
	w := newWorld()
	all := append([]string{"node real=64/256Gi", "policy burst cpu=none:650", "load node=4/10Gi pods=3/2Gi"}, lines...)
	for _, line := range append(all, "run 12s") {
		if err := w.do(line); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
	}
	return w
}

// next decides a second later, and applies the plan unless a write was refused.
func (w *world) next() model.Plan {
	w.node.Now = w.node.Now.Add(time.Second)
	w.measure()
	return w.round()
}

// settingOf returns what a plan says of a file.
func settingOf(plan *model.Plan, dir string, k model.Knob) *model.Setting {
	for i := range plan.Settings {
		if s := &plan.Settings[i]; s.File == (model.File{Dir: dir, Knob: k}) {
			return s
		}
	}
	return nil
}

// TestBurstProperties checks random pods before, during and after resizes. No burst exceeds any quota that the kernel
// may have at that time, and a pod's burst is the sum of its containers' bursts.
func TestBurstProperties(t *testing.T) {
	seen := 0
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 40))
		w := bursting(t)
		w.node.Kubelet.QuotaPeriod = []int64{100_000, 20_000, 5000}[r.IntN(3)]
		pod := fixture.Pod("p", model.Burstable)
		pod.Class = model.ClassLS
		group := model.PodGroup{Dir: "kubepods/burstable/podp", Inode: 1}
		limited := true
		for i := range 1 + r.IntN(4) {
			c := model.Container{Name: fmt.Sprint(i), ID: fmt.Sprintf("%012x", 0xa0+i),
				LimitMilli: r.Int64N(3000) * int64(r.IntN(4)), Init: r.IntN(5) == 0}
			c.LeastMilli = c.LimitMilli
			if r.IntN(3) == 0 {
				c.LeastMilli -= r.Int64N(c.LimitMilli + 1)
			}
			limited = limited && c.LeastMilli > 0
			if !c.Init {
				pod.LimitMilli, pod.LeastMilli = pod.LimitMilli+c.LimitMilli, pod.LeastMilli+c.LeastMilli
			}
			pod.Containers, group.Containers = append(pod.Containers, c), append(group.Containers, c.ID)
		}
		if !limited {
			pod.LeastMilli = 0
		}
		w.node.Pods, w.node.Tree.Pods = []*model.Pod{pod}, map[string]model.PodGroup{"p": group}
		plan := w.next()
		var sum int64
		for i := range pod.Containers {
			c := &pod.Containers[i]
			s := settingOf(&plan, group.Dir+"/"+c.ID, model.Burst)
			if (s != nil) != (c.LeastMilli > 0) {
				t.Fatalf("seed %d: %+v has %+v", seed, c, s)
			}
			if s == nil {
				continue
			}
			if seen++; s.Value.Number > model.MilliCPUToQuota(c.LeastMilli, w.node.Kubelet.QuotaPeriod) {
				t.Fatalf("seed %d: %+v has %+v", seed, c, s)
			}
			if !c.Init {
				sum += s.Value.Number
			}
		}
		s := settingOf(&plan, group.Dir, model.Burst)
		if (s != nil) != (pod.LeastMilli > 0) || s != nil &&
			s.Value.Number != min(sum, model.MilliCPUToQuota(pod.LeastMilli, w.node.Kubelet.QuotaPeriod)) {
			t.Fatalf("seed %d: %+v has %+v, its containers %d", seed, pod, s, sum)
		}
	}
	if seen < 500 {
		t.Errorf("only %d bursts were seen", seen)
	}
}

// TestBurstFromTheSpecAlone checks that a failed write has no effect on later bursts. (Koordinator adds to the value in
// the pod's file, so that one failed write shifts it for ever.)
func TestBurstFromTheSpecAlone(t *testing.T) {
	w := bursting(t, "pod a class=Burstable app=x:1 app=y:2 used=1/1Gi")
	want := w.next()
	for i := range w.node.Owned {
		w.node.Owned[i].Ours = model.Number(12345)
	}
	got := w.next()
	for _, s := range want.Settings {
		if g := settingOf(&got, s.Dir, s.Knob); g == nil || g.Value != s.Value {
			t.Errorf("%s %s: %+v, want %s", s.Dir, s.Knob, g, s.Value)
		}
	}
}

// TestBurstRefusedOnce checks that a burst that the kernel refuses is not written again each second. (Koordinator's
// default requests ten times as much as a mainline kernel accepts.)
func TestBurstRefusedOnce(t *testing.T) {
	w := bursting(t, "pod a class=Burstable app=x:1 used=1/1Gi")
	w.node.Incidents = []model.Incident{{File: model.File{Dir: "kubepods/burstable/poda", Knob: model.Burst},
		Kind: model.Rejected, Value: model.Number(100_000), Errno: "EINVAL"}}
	for range 100 {
		plan := w.next()
		if s := settingOf(&plan, "kubepods/burstable/poda", model.Burst); s.Deferred == nil ||
			s.Deferred.Code != model.RejectedByKernel {
			t.Fatalf("%+v", s)
		}
	}
	if err := w.do("pod a class=Burstable app=x:2 used=1/1Gi"); err != nil {
		t.Fatal(err)
	}
	plan := w.next()
	if s := settingOf(&plan, "kubepods/burstable/poda", model.Burst); s.Deferred != nil || s.Value.Number != 200_000 {
		t.Errorf("another value: %+v", s)
	}
}

// TestBurstOfSidecars checks that sidecars have limits and bursts like other containers. An init container that ends
// before the others start adds nothing to the pod. (Koordinator #2988 leaves both out.)
func TestBurstOfSidecars(t *testing.T) {
	w := bursting(t, "pod a class=Burstable app=setup:2 app=proxy:1 app=main:2 used=1/1Gi")
	pod := w.node.Pods[0]
	pod.Containers[0].Init, pod.LimitMilli, pod.LeastMilli = true, 3000, 3000
	plan := w.next()
	for dir, want := range map[string]int64{"": 300_000, "/0000000000a0": 200_000, "/0000000000a1": 100_000,
		"/0000000000a2": 200_000} {
		if s := settingOf(&plan, "kubepods/burstable/poda"+dir, model.Burst); s == nil || s.Value.Number != want {
			t.Errorf("%q: %+v, want %d", dir, s, want)
		}
	}
}

// TestBurstIsNotForgotten checks that one hot second ends bursts, and ten cool seconds bring them back. (Koordinator
// #2164: "none pod could get burst in long time".)
func TestBurstIsNotForgotten(t *testing.T) {
	w := bursting(t, "pod a class=Burstable app=x:1 used=1/1Gi")
	burst := func() int64 {
		plan := w.next()
		return settingOf(&plan, "kubepods/burstable/poda", model.Burst).Value.Number
	}
	w.load.node.CPU = 64_000
	if got := burst(); got != 0 {
		t.Errorf("hot: %d", got)
	}
	w.load.node.CPU = 4000
	for second := range 20 {
		if got := burst(); (got != 0) != (second >= 10) {
			t.Errorf("%d s later: %d", second, got)
		}
	}
}

// TestBurstAfterBoot checks that times of another boot of the machine are ignored.
func TestBurstAfterBoot(t *testing.T) {
	w := bursting(t, "pod a class=Burstable app=x:1 used=1/1Gi")
	w.measure()
	w.node.Load.Clock = time.Second
	_, state := node.Decide(w.node, w.policy, w.state)
	if state.Quota.Cool {
		t.Errorf("%+v", state.Quota)
	}
}

// TestRaiseIsPaidFor plays a container with changing demand that gets the CPU of its quota. Over any five minutes it
// gets at most its limit plus a tenth, and a few seconds of the quota that it had when its savings were used up.
func TestRaiseIsPaidFor(t *testing.T) {
	const limit, window = 1000, 300
	raised := 0
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 41))
		w := bursting(t, "pod a class=Burstable app=x:1 app=y:0.5 used=1/1Gi")
		quota, want := int64(limit), int64(0)
		var used []int64
		for range 1500 {
			if r.IntN(20) == 0 {
				want = r.Int64N(4000) * int64(r.IntN(2))
			}
			got := min(want, quota)
			used = append(used, got)
			w.load.inside = []model.InsideUsage{{UID: "a", Name: "0000000000a0",
				CPUUsage: model.CPUUsage{Milli: got, Periods: 10, Throttled: min(want-got, 10)}}}
			plan := w.next()
			quota = limit
			s, pod := settingOf(&plan, "kubepods/burstable/poda/0000000000a0", model.Quota),
				settingOf(&plan, "kubepods/burstable/poda", model.Quota)
			if (s == nil || s.Release) != (pod == nil || pod.Release) {
				t.Fatalf("seed %d: %+v, of the pod %+v", seed, s, pod)
			}
			if s != nil && !s.Release {
				raised++
				quota = s.Value.Number / 100
				if s.Value.Number > 300_000 || s.Value.Number <= 100_000 || pod.Value.Number != s.Value.Number+50_000 {
					t.Fatalf("seed %d: %+v, of the pod %+v", seed, s, pod)
				}
			}
			var sum int64
			for _, u := range used[max(0, len(used)-window):] {
				sum += u
			}
			if most := int64(limit * (window + window/10 + 4)); sum > most {
				t.Fatalf("seed %d: %d mCPU s in five minutes, want at most %d", seed, sum, most)
			}
		}
		if len(w.state.Quota.Raised) > 1 {
			t.Fatalf("%+v", w.state.Quota.Raised)
		}
	}
	if raised < 1000 {
		t.Errorf("raised in %d seconds only", raised)
	}
}

// TestRaiseOfAPodIsPaidFor checks the same for two containers that share the limit of their pod: together they may get
// what one could get. With a bucket for each, the idle one would save for the other what the pod has not saved.
func TestRaiseOfAPodIsPaidFor(t *testing.T) {
	const limit, window = 2000, 300
	const dir = "kubepods/burstable/poda"
	w := bursting(t, "pod a class=Burstable app=x:2 app=y:2 used=1/1Gi")
	pod := *w.node.Pods[0]
	pod.PodLevelCPU, pod.LimitMilli, pod.LeastMilli = true, limit, limit
	w.node.Pods = []*model.Pod{&pod}
	quota, raised := int64(limit), 0
	var used []int64
	for second := range 1200 {
		busy := second % 2 // in turn: each is idle half of the time
		got := quota       // it wants more
		used = append(used, got)
		all := w.load.used["a"]
		all.CPU, all.throttled = got, 5
		w.load.used["a"] = all
		w.load.inside = nil
		for i, name := range []string{"0000000000a0", "0000000000a1"} {
			u := model.InsideUsage{UID: "a", Name: name, CPUUsage: model.CPUUsage{Periods: 10}}
			if i == busy {
				u.Milli, u.Throttled = got, 5
			}
			w.load.inside = append(w.load.inside, u)
		}
		plan := w.next()
		whole, x, y := settingOf(&plan, dir, model.Quota), settingOf(&plan, dir+"/0000000000a0", model.Quota),
			settingOf(&plan, dir+"/0000000000a1", model.Quota)
		quota = limit
		if whole != nil && !whole.Release {
			raised++
			quota = whole.Value.Number / 100
			if x == nil || y == nil || x.Value != whole.Value || y.Value != whole.Value {
				t.Fatalf("second %d: %+v, %+v, of the pod %+v", second, x, y, whole)
			}
		}
		var sum int64
		for _, u := range used[max(0, len(used)-window):] {
			sum += u
		}
		if most := int64(limit * (window + window/10 + 4)); sum > most {
			t.Fatalf("second %d: %d mCPU s in five minutes, want at most %d", second, sum, most)
		}
	}
	if raised == 0 {
		t.Error("never raised")
	}
}

// TestRaiseIsForgotten checks that the state has no entry for containers that are gone, or that are no longer throttled
// and have their full savings again.
func TestRaiseIsForgotten(t *testing.T) {
	w := bursting(t, "pod a class=Burstable app=x:1 used=1/1Gi", "inside a 0000000000a0 1.2 5")
	w.next()
	if len(w.state.Quota.Raised) != 1 {
		t.Fatalf("%+v", w.state.Quota.Raised)
	}
	kept := w.state
	for _, line := range []string{"inside a 0000000000a0 0.1", "run 60s"} {
		if err := w.do(line); err != nil {
			t.Fatal(err)
		}
	}
	if w.next(); len(w.state.Quota.Raised) != 0 {
		t.Errorf("back at what it may save: %+v", w.state.Quota.Raised)
	}
	w.state = kept
	if err := w.do("gone a"); err != nil {
		t.Fatal(err)
	}
	if w.next(); len(w.state.Quota.Raised) != 0 {
		t.Errorf("gone: %+v", w.state.Quota.Raised)
	}
}

// newBursts returns a world with 110 pods of two containers that may all burst. A tenth of the containers are
// throttled.
func newBursts(t testing.TB) *world {
	w := newWorld()
	lines := []string{"node real=64/256Gi", "policy burst cpu=none:650", "load node=4/10Gi pods=3/2Gi"}
	for i := range 110 {
		lines = append(lines, fmt.Sprintf("pod p%03d class=Burstable app=a:0.2 app=b:0.1 used=0.1/1Gi", i))
		if i%10 == 0 {
			lines = append(lines, fmt.Sprintf("inside p%03d 0000000000a0 0.2 3", i))
		}
	}
	for _, line := range append(lines, "run 12s") {
		if err := w.do(line); err != nil {
			t.Fatal(err)
		}
	}
	w.measure()
	for uid, group := range w.node.Tree.Pods {
		group.Join() // as the agent does when it lists them
		w.node.Tree.Pods[uid] = group
	}
	return w
}

// BenchmarkBursts decides about such pods.
func BenchmarkBursts(b *testing.B) {
	w := newBursts(b)
	b.ReportAllocs()
	for b.Loop() {
		node.Decide(w.node, w.policy, w.state)
	}
}
