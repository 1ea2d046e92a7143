package kernel_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/host"
)

// TestCPUConfined narrows and widens groups that Waterline does not own, or no longer owns.
func TestCPUConfined(t *testing.T) {
	n := newCPUNode(t)
	if n.separate() {
		t.Skip("on v1, the kernel refuses to narrow a group below its children's CPUs")
	}
	if n.all.Len() < 4 {
		t.Skip("three CPUs or fewer: half of them is too few for exclusive CPUs")
	}
	n.audit = time.Second
	n.agent(memoryDir(t))
	everywhere := n.all
	var half, rest model.CPUSet
	for cpu := range n.all.All() {
		if half.Len() < n.all.Len()/2 {
			half.Add(cpu)
		} else {
			rest.Add(cpu)
		}
	}
	narrow := func(dir string, set model.CPUSet) {
		t.Helper()
		if err := os.WriteFile(n.cpusets(dir, "cpuset.cpus"), []byte(set.String()), 0); err != nil {
			t.Fatal(err)
		}
	}

	t.Log("all pods are confined to half of the CPUs, then to the other half")
	n.add(model.Burstable, model.CPUExclusive, false, 1)
	n.settle("one exclusive CPU")
	n.add(model.Guaranteed, model.CPUExclusive, false, 1, 0)
	n.settle("another exclusive CPU")
	home := n.add(model.Burstable, model.CPUShare, true, 1)
	n.add(model.BestEffort, model.CPUNone, true, 0)
	n.settle("before")
	for _, set := range []model.CPUSet{half, rest, everywhere} {
		narrow(n.layout.Root, set)
		n.all = set
		t.Logf("%s took %s", set, n.settle("confined to "+set.String()))
	}

	t.Log("a class is confined while its pods have home CPUs and none has exclusive ones, " +
		"so that the agent does not own the class's list")
	for _, p := range n.pods {
		if p != home {
			n.drop(p)
		}
	}
	n.settle("only a home is possible")
	own := n.list(home.dir+"/"+home.pod.Containers[0].ID, "cpuset.cpus")
	class := n.layout.Class(model.Burstable)
	narrow(class, n.all.Minus(own))
	within(t, "a notice", func() bool { n.mu.Lock(); defer n.mu.Unlock(); return n.notices[model.CPUsConfined] > 0 },
		func() string { return "none" })
	allowed, err := allowedCPUs(home.processes[home.pod.Containers[0].ID].Process.Pid)
	if err != nil || allowed != n.all.Minus(own) {
		t.Errorf("the process runs on %s (%v), not on the CPUs of the class", allowed, err)
	}
	narrow(class, everywhere)
	n.settle("the class is wide again")
	if is := n.list(home.dir+"/"+home.pod.Containers[0].ID, "cpuset.cpus"); is != own {
		t.Errorf("the home was %s and is %s", own, is)
	}
}

// TestCPUHotplug takes CPUs offline and online under pods with exclusive CPUs.
func TestCPUHotplug(t *testing.T) {
	if !emulated() {
		t.Skip("CPUs are taken offline only in the virtual machine")
	}
	n := newCPUNode(t)
	if n.all.Len() < 4 {
		t.Skip("three CPUs or fewer")
	}
	const first = "cpu1" // on x86, CPU 0 stays online
	if _, err := os.Stat(filepath.Join(host.DefaultSys, "devices/system/cpu", first, "online")); err != nil {
		t.Skipf("CPUs cannot be taken offline: %v", err)
	}
	everywhere := n.all
	t.Cleanup(func() {
		for cpu := range everywhere.All() {
			if cpu > 0 {
				n.plug(cpu, true)
			}
		}
	})
	n.audit = 250 * time.Millisecond
	dir := memoryDir(t)
	r := n.agent(dir)
	alone := n.add(model.Burstable, model.CPUExclusive, false, 2)
	n.settle("two exclusive CPUs")
	n.add(model.Guaranteed, model.CPUExclusive, false, 1, 1, 0)
	n.settle("two containers with exclusive CPUs")
	n.add(model.Burstable, model.CPUShare, true, 2)
	n.add(model.BestEffort, model.CPUNone, true, 0)
	n.settle("before")

	var took []time.Duration
	settle := func(what string) {
		t.Helper()
		took = append(took, n.settle(what))
		n.mu.Lock()
		defer n.mu.Unlock()
		for uid, p := range n.pods {
			if c := n.conditions[uid]; p.pod.Annotations.CPUs != model.CPUNone && !c.Met {
				t.Logf("%s: %s requests %s, and the condition is %s", what, uid, p.pod.Annotations.CPUs, c.Message)
				// In full form, CPUs come and go faster than pods may be moved.
				if !slices.Contains([]model.Code{model.CPUsLost, model.CPUsTaken, model.CPUsPromised, model.CPUsTooMany,
					model.CPUsMoveLater}, c.Reason) {
					t.Errorf("the reason is not a lack of CPUs: %s", c.Reason)
				}
			}
		}
	}
	t.Log("one pod loses a CPU, and gets another one or a reason")
	lost := n.ownOf(alone)
	n.plug(last(lost), false)
	settle("a CPU goes offline")
	if now := n.ownOf(alone); now.Has(last(lost)) || now.Len() != lost.Len() {
		t.Errorf("the pod had %s and has %s, of %s", lost, now, n.all)
	}
	n.plug(last(lost), true)
	settle("the CPU is online again")

	t.Log("all CPUs except two go offline, one after the other, and come back")
	for cpu := range everywhere.All() {
		if cpu > 1 {
			n.plug(cpu, false)
			settle(fmt.Sprintf("CPU %d goes offline", cpu))
		}
	}
	for cpu := range everywhere.All() {
		if cpu > 1 {
			n.plug(cpu, true)
			settle(fmt.Sprintf("CPU %d comes online", cpu))
		}
	}
	for uid := range n.pods {
		if c := n.condition(uid); c.Reason != "" && !c.Met {
			t.Errorf("all CPUs are online, and the condition of %s is %s", uid, c.Message)
		}
	}

	seed := uint64(time.Now().UnixNano())
	t.Logf("several CPUs come and go at the same time, seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	steps := 10
	if soak() {
		steps = 200
	}
	for step := range steps {
		restart := random.IntN(4) == 0
		if restart {
			r.stop()
		}
		for range 1 + random.IntN(3) {
			cpu := 1 + random.IntN(everywhere.Len()-1)
			n.plug(cpu, !n.all.Has(cpu))
		}
		if restart {
			r = n.agent(dir)
		}
		settle(fmt.Sprintf("step %d, with %s", step, n.all))
	}
	p50, p90, p99 := quantiles(took)
	t.Logf("%d changes, an audit each %s: p50 %s, p90 %s, p99 %s until every process had the right CPUs", len(took),
		n.audit, p50, p90, p99)
}

// TestCPUFacts checks the behaviour of CPU lists on v2 that the agent relies on.
func TestCPUFacts(t *testing.T) {
	n := newCPUNode(t)
	if n.separate() {
		t.Skip("v1 has different rules")
	}
	everywhere := n.all
	p := n.add(model.Burstable, model.CPUNone, true, 0)
	tell := func(dir, list string) error { return os.WriteFile(n.cpusets(dir, "cpuset.cpus"), []byte(list), 0) }
	expect := func(dir, file string, want model.CPUSet) {
		t.Helper()
		if is := n.list(dir, file); is != want {
			t.Errorf("%s in %s is %s, not %s", file, dir, is, want)
		}
	}
	container := p.dir + "/" + p.pod.Containers[0].ID
	if err := errors.Join(tell(p.dir, "0"), tell(container, "1")); err != nil {
		t.Errorf("a list disjoint from the parent's: %v", err)
	}
	expect(container, "cpuset.cpus", model.CPUs(1))
	expect(container, "cpuset.cpus.effective", model.CPUs(0))
	if err := tell(p.dir, "\n"); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("emptying the list of a group with processes: %v", err)
	}
	if !emulated() || n.all.Len() < 4 {
		return
	}
	t.Log("a list keeps a CPU that goes offline, accepts an offline CPU, and has both when they are online again")
	t.Cleanup(func() { n.plug(3, true) })
	n.plug(3, false)
	if err := tell(p.dir, everywhere.String()); err != nil {
		t.Errorf("a list with an offline CPU: %v", err)
	}
	expect(p.dir, "cpuset.cpus", everywhere)
	expect(p.dir, "cpuset.cpus.effective", n.all)

	t.Log("a group all of whose CPUs are offline may run wherever its parent may")
	if err := errors.Join(tell(container, "3"), tell(p.dir, "3")); err != nil {
		t.Error(err)
	}
	expect(p.dir, "cpuset.cpus.effective", n.all)
	if err := tell(p.dir, everywhere.String()); err != nil {
		t.Error(err)
	}

	t.Log("the kernel adds a CPU to groups only after it has described its caches")
	for range 10 {
		described := make(chan error, 1)
		go func() {
			for !model.CPUs(3).Within(n.list(p.dir, "cpuset.cpus.effective")) {
			}
			_, err := os.Stat(filepath.Join(host.DefaultSys, "devices/system/cpu/cpu3/cache/index0/shared_cpu_list"))
			described <- err
		}()
		n.plug(3, true)
		if err := <-described; err != nil {
			t.Errorf("CPU 3 was allowed before its caches were described: %v", err)
		}
		expect(p.dir, "cpuset.cpus.effective", everywhere)
		n.plug(3, false)
		within(t, "CPU 3 goes offline", func() bool { return !model.CPUs(3).Within(n.list(p.dir, "cpuset.cpus.effective")) },
			func() string { return "CPU 3 stays online" })
	}
}

// plug takes a CPU offline or online.
func (n *cpuNode) plug(cpu int, online bool) {
	n.t.Helper()
	file, text := filepath.Join(host.DefaultSys, fmt.Sprintf("devices/system/cpu/cpu%d/online", cpu)), "0"
	if online {
		text = "1"
	}
	if is, err := os.ReadFile(file); err != nil || strings.TrimSpace(string(is)) != text {
		if err := os.WriteFile(file, []byte(text), 0); err != nil {
			n.t.Fatal(err)
		}
	}
	if n.all.Remove(cpu); online {
		n.all.Add(cpu)
	}
}

// ownOf returns the CPUs that the agent reported as a pod's own.
func (n *cpuNode) ownOf(p *cpuPod) model.CPUSet {
	return conditionCPUs(n.condition(p.pod.UID))
}

// last returns the highest CPU of a set.
func last(set model.CPUSet) int {
	highest := -1
	for cpu := range set.All() {
		highest = cpu
	}
	return highest
}
