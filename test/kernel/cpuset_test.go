package kernel_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// TestCPUSets lets pods that request CPUs come, change their requests, restart and go. Meanwhile the agent restarts,
// and another writer changes their cgroups. It checks where the kernel lets the pods' processes run.
func TestCPUSets(t *testing.T) {
	n := newCPUNode(t)
	dir := memoryDir(t)
	r := n.agent(dir)
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 0))
	many, half := n.all.Len() >= 8, int64(n.all.Len()/2)
	most, steps, pause := 8, 60, time.Duration(0)
	shapes := [][]int64{{1}, {1, 0}, {0}, {2}, {1, 1}, {half}, {max(half-1, 1)}, {half - 1, 1, 0}}
	if many {
		most, steps = n.all.Len()+2, 100
		n.crowd(half)
	}
	if testing.Short() {
		steps = 15
	}
	if soak() {
		steps, pause = 1000, 300*time.Millisecond // about as fast as the agent may move pods
	}
	var took []time.Duration
	for step := range steps {
		var uids []string
		for uid := range n.pods {
			uids = append(uids, uid)
		}
		slices.Sort(uids)
		var what string
		var p *cpuPod
		if len(uids) > 0 {
			p = n.pods[uids[random.IntN(len(uids))]]
		}
		mode := []model.CPUMode{model.CPUNone, model.CPUShare, model.CPUExclusive, model.CPUExclusive}[random.IntN(4)]
		switch k := random.IntN(12); {
		case p == nil || k < 3 && len(uids) < most:
			limits := shapes[random.IntN(len(shapes))]
			n.hint = model.CPUSet{}
			for range random.IntN(4) {
				n.hint.Add(random.IntN(n.all.Len()))
			}
			// A scheduler would not bind more than fits. Static pods can exceed the node all the same, but rarely.
			less := n.requested()+sum(limits) > int64(n.all.Len()) && random.IntN(8) > 0
			p = n.add(model.QoSClass(random.IntN(3)), mode, less, limits...)
			what = fmt.Sprintf("add %s %v as %s", p.pod.UID, limits, mode)
		case k < 5:
			what = "drop " + p.pod.UID
			n.drop(p)
		case k < 8:
			what = fmt.Sprintf("%s becomes %s", p.pod.UID, mode)
			n.annotate(p, mode)
		case k < 9:
			what = "restart a container of " + p.pod.UID
			n.restart(p, random.IntN(len(p.pod.Containers)))
		case k < 10:
			what = "the agent restarts"
			r.stop()
			r = n.agent(dir)
		default:
			what = n.drift(p, random)
		}
		took = append(took, n.settle(fmt.Sprintf("step %d of seed %d: %s", step, seed, what)))
		time.Sleep(pause)
	}
	p50, p90, p99 := quantiles(took)
	t.Logf("%d steps: p50 %s, p90 %s, p99 %s until every process had the right CPUs", steps, p50, p90, p99)
	if len(n.bound) > 0 {
		p50, p90, p99 = quantiles(n.bound)
		t.Logf("%d new pods: p50 %s, p90 %s, p99 %s from the pod's cgroup to its CPU list", len(n.bound), p50, p90, p99)
	}
	t.Log("mode Disabled restores every file")
	mode := func(m model.Mode) { r.mu.Lock(); r.policy.Mode = m; r.mu.Unlock() }
	mode(model.ModeDisabled)
	within(t, "every process may run on all CPUs", func() bool { return n.confined() == "" }, n.confined)
	mode(model.ModeEnforce)
	n.settle("mode Enforce again")
	for uid, p := range n.pods {
		n.drop(p)
		n.settle("drop " + uid)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	t.Logf("seen: %v", n.seen)
	for _, kind := range []string{string(model.CPUsExclusive), string(model.CPUsShare), "several cores", "refused",
		"moved"} {
		if n.seen[kind] == 0 && many {
			t.Errorf("%d steps, and no event %q", steps, kind)
		}
	}
}

// TestCPUHint hints the same CPU to two pods. The first one's process runs there, and the second one gets another CPU
// and an event. Meanwhile the agent reports the free CPUs.
func TestCPUHint(t *testing.T) {
	n := newCPUNode(t)
	n.source.change(func(s *model.Snapshot) { s.UID = "node" }) // otherwise nothing is reported
	n.agent(memoryDir(t))
	room := func(free model.CPUSet) {
		t.Helper()
		report := func() (list string) {
			n.mu.Lock()
			defer n.mu.Unlock()
			if n.room != nil {
				list = n.room.Free.String()
			}
			return list
		}
		within(t, "the report has the free CPUs "+free.String(), func() bool { return report() == free.String() }, report)
	}
	room(n.all)
	last := slices.Max(slices.Collect(n.all.All())) // without a hint, pods get the lowest CPUs
	n.hint = model.CPUs(last)
	first := n.add(model.Guaranteed, model.CPUExclusive, false, 1)
	n.settle("the first pod")
	for id, cmd := range first.processes {
		if allowed, err := allowedCPUs(cmd.Process.Pid); err != nil || id == first.pod.Containers[0].ID && allowed != n.hint {
			t.Errorf("%s of the first pod runs on %s, not on %s (%v)", id, allowed, n.hint, err)
		}
	}
	room(n.all.Minus(n.hint))
	second := n.add(model.Burstable, model.CPUShare, false, 1)
	n.settle("the second pod")
	unused := func() string {
		n.mu.Lock()
		defer n.mu.Unlock()
		return fmt.Sprintf("%d events, %+v", n.notices[model.CPUsHintUnused], n.conditions[second.pod.UID])
	}
	within(t, "the second pod has another CPU, and one event says so", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.notices[model.CPUsHintUnused] == 1 && n.conditions[second.pod.UID].Met
	}, unused)
	n.drop(first)
	n.drop(second)
	room(n.all)
}

// crowd causes each event that a run of a hundred random steps may miss.
func (n *cpuNode) crowd(half int64) {
	n.t.Helper()
	n.add(model.Burstable, model.CPUExclusive, false, half-1, 0)
	n.settle("several cores alone")
	home := n.add(model.Guaranteed, model.CPUShare, false, 2)
	n.settle("a home")
	n.add(model.BestEffort, model.CPUNone, true, 0)
	n.settle("no CPUs of its own")
	n.add(model.Burstable, model.CPUShare, true, half)
	n.settle("more than is left")
	n.annotate(home, model.CPUExclusive)
	n.settle("a home is made exclusive")
}

// confined names a process that may not run on all CPUs. It returns "" if there is none.
func (n *cpuNode) confined() string {
	for uid, p := range n.pods {
		for id, cmd := range p.processes {
			if allowed, err := allowedCPUs(cmd.Process.Pid); err != nil || allowed != n.all {
				return fmt.Sprintf("%s of %s on %s (%v)", id, uid, allowed, err)
			}
		}
	}
	return ""
}

// requested returns the sum of the CPUs that the node's pods request.
func (n *cpuNode) requested() int64 {
	var milli int64
	for _, p := range n.pods {
		milli += p.pod.RequestMilli
	}
	return milli / 1000
}

func sum(limits []int64) int64 {
	var all int64
	for _, limit := range limits {
		all += limit
	}
	return all
}

// drift writes a CPU list into a cgroup whose list the agent owns: that of a pod with CPUs of its own or, on v2, that
// of a QoS class while any pod has exclusive CPUs. Without exclusive CPUs, the agent owns no other list.
func (n *cpuNode) drift(p *cpuPod, random *rand.Rand) string {
	var dirs []string
	if n.served(p.pod.UID) {
		dirs = append(dirs, p.dir+"/"+p.pod.Containers[0].ID)
		if !n.separate() {
			dirs = append(dirs, p.dir)
		}
	}
	if taken := n.foreign(""); !n.separate() && !taken.Empty() && random.IntN(2) == 0 {
		dirs = append(dirs, n.layout.Class(model.Burstable), n.layout.Class(model.BestEffort))
	}
	if len(dirs) == 0 {
		return "there is no list for another writer"
	}
	dir := dirs[random.IntN(len(dirs))]
	list := fmt.Sprint(random.IntN(n.all.Len()))
	if err := os.WriteFile(n.cpusets(dir, "cpuset.cpus"), []byte(list), 0); err == nil {
		n.saw("drift")
	}
	return "another writer writes " + list + " in " + dir
}
