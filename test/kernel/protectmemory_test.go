package kernel_test

import (
	"os"
	"os/exec"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/agent"
	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// ramDisk is where the virtual machine has the module of the kernel's memory disk, see vmrun's -module.
const ramDisk = "/lib/modules/brd.ko"

// needSwap makes sure that memory of processes can be taken from them, or skips the test. The virtual machine has no disk, so it
// swaps to a disk in memory.
func needSwap(t *testing.T) {
	t.Helper()
	swaps, err := os.ReadFile("/proc/swaps")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(string(swaps), "\n") > 1 {
		return
	}
	if _, err := os.Stat(ramDisk); err != nil {
		t.Skip("live kernel: no swap")
	}
	const device = "/dev/ram0"
	do := func(name string, args ...string) {
		if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
			t.Errorf("%s %s: %v: %s", name, args, err, out)
		}
	}
	if _, err := os.Stat(device); err != nil {
		do("insmod", ramDisk, "rd_nr=1", "rd_size=131072")
	}
	do("mkswap", device)
	do("swapon", device)
	t.Cleanup(func() { do("swapoff", device) })
}

// newMemoryNode makes a node on which memory can be protected, or skips the test.
func newMemoryNode(t *testing.T) *node {
	n := newBatchNode(t)
	if n.mount.Version == cgroup.V1 {
		t.Skip("live kernel: cgroup v1 protects no memory")
	}
	return n
}

// web is an online pod that requests memory.
func web(uid string, class model.Class, request int64) model.Pod {
	return model.Pod{UID: uid, APIUID: uid, Namespace: "default", Name: uid, QoS: model.Burstable, Class: class, MemoryRequest: request}
}

func (r *run) protect(on bool) {
	r.mu.Lock()
	r.policy.Protect.Memory = on
	r.mu.Unlock()
}

// TestProtectMemory walks protected pods through their lives: they and all groups above have what they were promised, whoever
// overwrites that, nothing is written in vain, and all is given back, also when the kubelet begins to do it itself.
func TestProtectMemory(t *testing.T) {
	n := newMemoryNode(t)
	const request = 100_000_001 // not whole pages (Koordinator's was written again each minute)
	whole := int64(request - request%os.Getpagesize())
	source := newPods()
	source.set(web("a", model.ClassLS, request))
	source.set(web("b", model.ClassLSR, 2*request))
	source.set(batch("c", model.Grant{RequestMilli: 1000}, ""))
	a, b, c := n.pod(model.Burstable, "a", 100, "0123456789aa"), n.pod(model.Burstable, "b", 100, "0123456789bb"), n.pod(model.BestEffort, "c", 0)
	class, root, top := n.layout.Class(model.Burstable), n.layout.Root, path.Dir(n.layout.Root)
	n.set(root, model.MemoryLow, 7*mib) // somebody's, to be given back
	r := n.start(source, func(c *agent.Config) { c.SyncPeriod = 100 * time.Millisecond })
	expect := func(k model.Knob, value int64, dirs ...string) {
		t.Helper()
		for _, dir := range dirs {
			n.expect(dir, k, value)
		}
	}
	within(t, "ready", func() bool { return r.agent.Ready() == nil }, func() string { return r.agent.Ready().Error() })
	if got := n.raw(a, model.MemoryLow); got != 0 {
		t.Fatalf("no policy asks for it, and %d is protected", got)
	}

	t.Log("the policy says so")
	r.protect(true)
	on := func() {
		t.Helper()
		expect(model.MemoryLow, whole, a)
		expect(model.MemoryMin, 2*request-2*request%int64(os.Getpagesize()), b)
		for dir, others := range map[string]int64{class: 0, root: 7 * mib, top: 0} { // nothing is used: a step at most
			within(t, dir+" has little", func() bool { v := n.raw(dir, model.MemoryLow); return v >= others && v <= whole },
				func() string { return n.text(dir, "memory.low") })
		}
		expect(model.MemoryLow, 0, b, c, n.layout.Class(model.BestEffort))
		expect(model.MemoryMin, 0, a, c, n.layout.Class(model.BestEffort))
	}
	on()

	t.Log("what is used of it is carried by all above")
	h := n.hold(a + "/0123456789aa")
	h.do("anon")
	for _, dir := range []string{class, root, top} {
		within(t, dir+" has what is used", func() bool { return n.raw(dir, model.MemoryLow) >= 64*mib }, func() string { return n.text(dir, "memory.low") })
	}

	t.Log("another writer is answered, and who sets more above stays")
	n.set(a, model.MemoryLow, 0)
	n.set(class, model.MemoryLow, 0)
	expect(model.MemoryLow, whole, a)
	within(t, "the class has it again", func() bool { return n.raw(class, model.MemoryLow) >= 64*mib }, func() string { return n.text(class, "memory.low") })
	n.set(class, model.MemoryLow, 900*mib)
	n.expect(class, model.MemoryLow, 900*mib)
	time.Sleep(300 * time.Millisecond)
	n.expect(class, model.MemoryLow, 900*mib)
	n.set(class, model.MemoryLow, 0)
	within(t, "the class has ours again", func() bool { v := n.raw(class, model.MemoryLow); return v >= 64*mib && v < 900*mib }, func() string { return n.text(class, "memory.low") })

	t.Log("nothing is written in vain")
	time.Sleep(2 * time.Second) // what a process has just taken is measured
	writes := func() (sum float64) {
		for _, k := range []model.Knob{model.MemoryMin, model.MemoryLow} {
			sum += metric(t, r.agent, v1alpha1.MetricWrites, "file", k.String())
		}
		return sum
	}
	before := writes()
	time.Sleep(2 * time.Second)
	if more := writes() - before; more != 0 {
		t.Errorf("%v values were written in vain", more)
	}

	off := func() {
		t.Helper()
		expect(model.MemoryLow, 0, a, b, class, top)
		expect(model.MemoryLow, 7*mib, root)
		expect(model.MemoryMin, 0, a, b, class, root, top)
	}
	t.Log("a container comes as the kubelet's MemoryQoS makes them: everything is given back")
	n.set(b+"/0123456789bb", model.MemoryHigh, 50*mib)
	off()
	n.set(b+"/0123456789bb", model.MemoryHigh, model.Unlimited)
	on()

	t.Log("the policy says so no more")
	r.protect(false)
	off()
	r.protect(true)
	on()

	t.Log("restore gives everything back")
	r.stop()
	if restored, err := agent.Restore(t.Context(), agent.Config{CgroupRoot: "/sys/fs/cgroup", RunDir: r.dir, Pods: source}); err != nil || len(restored) == 0 {
		t.Errorf("restoring: %+v, %v", restored, err)
	}
	off()
}

// TestProtectWorkingSet has batch take more memory than there is, beside an online pod that does nothing with its own. What the
// pod keeps of it without protection shows that it is protection by which it keeps all.
func TestProtectWorkingSet(t *testing.T) {
	n := newMemoryNode(t)
	needSwap(t)
	top := path.Dir(n.layout.Root)
	n.set(top, model.MemoryMax, 96*mib) // the node's memory
	a, b := n.pod(model.Burstable, "a", 100, "0123456789aa"), n.pod(model.BestEffort, "b", 0, "0123456789bb")
	lost := func() int64 {
		t.Helper()
		online := n.hold(a + "/0123456789aa")
		online.do("anon")
		before := n.anon(a)
		hog := n.hold(b + "/0123456789bb")
		hog.do("anon")
		left := n.anon(a)
		for _, h := range []*holder{online, hog} {
			if h.ended() {
				t.Fatal("a process was killed")
			}
			h.end()
		}
		return before - left
	}
	without := lost()
	t.Logf("without protection the online pod lost %d MiB of 64 to batch", without/mib)
	if without < 8*mib {
		t.Fatal("so little that the test shows nothing")
	}

	source := newPods()
	source.set(web("a", model.ClassLS, 96*mib))
	source.set(batch("b", model.Grant{RequestMilli: 1000}, "0123456789bb"))
	r := n.start(source, func(c *agent.Config) { c.SyncPeriod = 100 * time.Millisecond })
	r.protect(true)
	n.expect(a, model.MemoryLow, 96*mib)
	online := n.hold(a + "/0123456789aa")
	online.do("anon")
	within(t, "what the pod uses is carried above", func() bool { return n.raw(n.layout.Root, model.MemoryLow) >= 64*mib },
		func() string { return n.text(n.layout.Root, "memory.low") })
	before := n.anon(a)
	hog := n.hold(b + "/0123456789bb")
	hog.do("anon")
	with := before - n.anon(a)
	t.Logf("with protection it lost %d KiB", with>>10)
	if with > without/8 {
		t.Errorf("with protection the online pod lost %d MiB to batch, without %d", with/mib, without/mib)
	}
	if online.ended() || hog.ended() {
		t.Error("a process was killed")
	}
}

// TestUnclaimedProtection pins down why groups above pods carry only what is used of what was promised: the kernel gives what they
// carry beyond that to batch, and takes memory from whoever stands beside them instead.
func TestUnclaimedProtection(t *testing.T) {
	n := newMemoryNode(t)
	needSwap(t)
	top := path.Dir(n.layout.Root)
	daemons, b := top+"/system", n.pod(model.BestEffort, "b", 0, "0123456789bb")
	n.group(daemons)
	n.pod(model.Burstable, "a", 100) // was promised all that is unclaimed, and uses nothing
	lost := func(carried int64) int64 {
		t.Helper()
		n.set(n.layout.Root, model.MemoryLow, carried)
		daemon := n.hold(daemons)
		daemon.do("anon")
		n.set(top, model.MemoryMax, 96*mib)
		before := n.anon(daemons)
		hog := n.hold(b + "/0123456789bb")
		hog.do("anon")
		left := n.anon(daemons)
		hog.end()
		n.set(top, model.MemoryMax, model.Unlimited)
		daemon.end()
		return before - left
	}
	promised, used := lost(1<<30), lost(0)
	t.Logf("of 64 MiB the daemon lost %d to batch, had the groups above carried all that was promised; and %d as they carry what is used", promised/mib, used/mib)
	if promised < used+8*mib {
		t.Error("that makes no difference: they might as well carry what was promised")
	}
}

// anon returns how much memory the processes in a group have.
func (n *node) anon(dir string) int64 {
	n.t.Helper()
	stat, err := cgroup.ParseMemoryStat(n.mount.Version, []byte(n.text(dir, "memory.stat")+"\n"))
	if err != nil {
		n.t.Fatal(err)
	}
	return stat.Anon
}
