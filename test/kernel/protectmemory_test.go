package kernel_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/api/v1alpha1"
	acthost "github.com/waterline-io/waterline/internal/act/host"
	"github.com/waterline-io/waterline/internal/agent"
	"github.com/waterline-io/waterline/internal/agent/restore"
	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/journal"
	"github.com/waterline-io/waterline/internal/model"
)

// ramDisk is the path of the kernel module of memory disks in the virtual machine, see vmrun's -module.
const ramDisk = "/lib/modules/brd.ko"

// needSwap makes sure that the kernel can reclaim the memory of processes, or skips the test. The virtual machine has
// no disk, so it swaps to a disk in memory.
func needSwap(t *testing.T) {
	t.Helper()
	swaps, err := os.ReadFile("/proc/swaps")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(string(swaps), "\n") > 1 {
		return
	}
	swap, _ := ramDisks(t)
	do(t, "mkswap", swap)
	do(t, "swapon", swap)
	t.Cleanup(func() { do(t, "swapoff", swap) })
}

// ramDisks returns two disks in memory, of 96 MiB each, or skips the test where there are none.
func ramDisks(t *testing.T) (first, second string) {
	t.Helper()
	const disks = "/dev/ram"
	if _, err := os.Stat(disks + "1"); err != nil {
		if _, err := os.Stat(ramDisk); err != nil {
			t.Skip("live kernel: no swap, and no disks in memory")
		}
		do(t, "insmod", ramDisk, "rd_nr=2", "rd_size=98304")
	}
	return disks + "0", disks + "1"
}

func do(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Errorf("%s %s: %v: %s", name, args, err, out)
	}
}

// newMemoryNode makes a node on which memory can be protected, or skips the test.
func newMemoryNode(t *testing.T) *testNode {
	n := newBatchNode(t)
	if n.mount.Version == cgroup.V1 {
		t.Skip("live kernel: cgroup v1 protects no memory")
	}
	return n
}

// web returns an online pod with a memory request.
func web(uid string, class model.Class, request int64) model.Pod {
	return model.Pod{UID: uid, APIUID: uid, Namespace: "default", Name: uid, QoS: model.Burstable, Class: class,
		MemoryRequest: request}
}

func (r *run) protect(on bool) {
	r.mu.Lock()
	r.policy.Protect.Memory = on
	r.mu.Unlock()
}

// TestProtectMemory walks protected pods through their lives. They and all parent groups have their protection, also
// after another writer. The agent repeats no write without need, and restores all files, also when the kubelet starts
// to protect memory itself.
func TestProtectMemory(t *testing.T) {
	n := newMemoryNode(t)
	const request = 100_000_001 // not whole pages (Koordinator wrote such a value again each minute)
	whole := int64(request - request%os.Getpagesize())
	source := newPods()
	source.set(web("a", model.ClassLS, request))
	source.set(web("b", model.ClassLSR, 2*request))
	source.set(batch("c", model.Grant{RequestMilli: 1000}, ""))
	a, b, c := n.pod(model.Burstable, "a", 100, "0123456789aa"), n.pod(model.Burstable, "b", 100, "0123456789bb"),
		n.pod(model.BestEffort, "c", 0)
	class, root, top := n.layout.Class(model.Burstable), n.layout.Root, path.Dir(n.layout.Root)
	n.set(root, model.MemoryLow, 7*mib) // another writer's value, to be restored
	r := n.start(source, func(c *agent.Config) { c.SyncPeriod = 100 * time.Millisecond })
	expect := func(k model.Knob, value int64, dirs ...string) {
		t.Helper()
		for _, dir := range dirs {
			n.expect(dir, k, value)
		}
	}
	within(t, "ready", func() bool { return r.agent.Ready() == nil }, func() string { return r.agent.Ready().Error() })
	if got := n.raw(a, model.MemoryLow); got != 0 {
		t.Fatalf("no policy protects memory, but %d bytes are protected", got)
	}

	t.Log("the policy protects memory")
	r.protect(true)
	on := func() {
		t.Helper()
		expect(model.MemoryLow, whole, a)
		expect(model.MemoryMin, 2*request-2*request%int64(os.Getpagesize()), b)
		// the pods use nothing, so a step at most
		for dir, others := range map[string]int64{class: 0, root: 7 * mib, top: 0} {
			within(t, dir+" has little protection", func() bool {
				v := n.raw(dir, model.MemoryLow)
				return v >= others &&
					v <= whole
			},
				func() string { return n.text(dir, "memory.low") })
		}
		expect(model.MemoryLow, 0, b, c, n.layout.Class(model.BestEffort))
		expect(model.MemoryMin, 0, a, c, n.layout.Class(model.BestEffort))
	}
	on()

	t.Log("all parent groups have the used part of the protection")
	h := n.hold(a + "/0123456789aa")
	h.do("anon")
	for _, dir := range []string{class, root, top} {
		within(t, dir+" has the used part", func() bool { return n.raw(dir, model.MemoryLow) >= 64*mib },
			func() string { return n.text(dir, "memory.low") })
	}

	t.Log("the agent repairs lower values of another writer, and keeps higher ones of parent groups")
	n.set(a, model.MemoryLow, 0)
	n.set(class, model.MemoryLow, 0)
	expect(model.MemoryLow, whole, a)
	within(t, "the class has its protection again", func() bool { return n.raw(class, model.MemoryLow) >= 64*mib },
		func() string { return n.text(class, "memory.low") })
	n.set(class, model.MemoryLow, 900*mib)
	n.expect(class, model.MemoryLow, 900*mib)
	time.Sleep(300 * time.Millisecond)
	n.expect(class, model.MemoryLow, 900*mib)
	n.set(class, model.MemoryLow, 0)
	within(t, "the class has our value again", func() bool {
		v := n.raw(class, model.MemoryLow)
		return v >= 64*mib &&
			v < 900*mib
	}, func() string { return n.text(class, "memory.low") })

	t.Log("the agent repeats no write")
	time.Sleep(2 * time.Second) // memory that a process has just allocated is measured
	writes := func() (sum float64) {
		for _, k := range []model.Knob{model.MemoryMin, model.MemoryLow} {
			sum += metric(t, r.agent, v1alpha1.MetricWrites, "file", k.String())
		}
		return sum
	}
	r.rests(t, "write of a value", 20, writes)

	off := func() {
		t.Helper()
		expect(model.MemoryLow, 0, a, b, class, top)
		expect(model.MemoryLow, 7*mib, root)
		expect(model.MemoryMin, 0, a, b, class, root, top)
	}
	t.Log("a container has the settings of the kubelet's MemoryQoS: the agent restores every file")
	n.set(b+"/0123456789bb", model.MemoryHigh, 50*mib)
	off()
	n.set(b+"/0123456789bb", model.MemoryHigh, model.Unlimited)
	on()

	t.Log("the policy no longer protects memory")
	r.protect(false)
	off()
	r.protect(true)
	on()

	t.Log("waterline restore restores every file")
	r.stop()
	if restored, err := restore.Restore(t.Context(), restore.Config{CgroupRoot: "/sys/fs/cgroup", RunDir: r.dir,
		Pods: source}); err != nil || len(restored) == 0 {
		t.Errorf("restoring: %+v, %v", restored, err)
	}
	off()
}

// TestProtectWorkingSet lets batch allocate more memory than the node has, beside an online pod that does not use its
// own. The comparison with a run without protection shows that the pod keeps its memory because of the protection.
func TestProtectWorkingSet(t *testing.T) {
	n := newMemoryNode(t)
	needSwap(t)
	top := path.Dir(n.layout.Root)
	n.set(top, model.MemoryMax, 96*mib) // memory of the node
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
	t.Logf("without protection, the online pod lost %d MiB of 64 to batch", without/mib)
	if without < 8*mib {
		t.Fatal("too little for the test to prove anything")
	}

	source := newPods()
	source.set(web("a", model.ClassLS, 96*mib))
	source.set(batch("b", model.Grant{RequestMilli: 1000}, "0123456789bb"))
	r := n.start(source, func(c *agent.Config) { c.SyncPeriod = 100 * time.Millisecond })
	r.protect(true)
	n.expect(a, model.MemoryLow, 96*mib)
	online := n.hold(a + "/0123456789aa")
	online.do("anon")
	within(t, "the parent groups have the used part of the protection",
		func() bool { return n.raw(n.layout.Root, model.MemoryLow) >= 64*mib },
		func() string { return n.text(n.layout.Root, "memory.low") })
	before := n.anon(a)
	hog := n.hold(b + "/0123456789bb")
	hog.do("anon")
	with := before - n.anon(a)
	t.Logf("with protection, the pod lost %d KiB", with>>10)
	if with > without/8 {
		t.Errorf("with protection, the online pod lost %d MiB to batch, without %d", with/mib, without/mib)
	}
	if online.ended() || hog.ended() {
		t.Error("a process was killed")
	}
}

// TestRelieve lets an agent find that little memory is left for batch. The agent reclaims the page cache of a batch
// pod, step by step, and limits the pod's memory meanwhile. Then there is enough again.
func TestRelieve(t *testing.T) {
	n := newMemoryNode(t)
	_, disk := ramDisks(t)
	open, err := os.Open(disk) // otherwise the kernel forgets its cached pages
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	b := n.pod(model.BestEffort, "b", 0, "0123456789bb")
	h := n.hold(b + "/0123456789bb")
	h.do("read " + disk)
	had := n.stat(b).InactiveFile
	if had < 64*mib {
		t.Fatalf("only %d MiB are cached", had/mib)
	}
	source := newPods()
	pod := batch("b", model.Grant{RequestMilli: 1000}, "0123456789bb")
	pod.Batch = model.Amount{CPU: 1000, Memory: 1 << 30}
	source.set(pod)
	r := n.start(source, func(c *agent.Config) { c.SyncPeriod = 100 * time.Millisecond })
	waterline := func(part int64) {
		r.mu.Lock()
		r.policy.Memory.Waterline = part
		r.mu.Unlock()
	}
	waterline(10) // of the memory, in thousandths: more is already in use
	r.protect(true)
	within(t, "the pod's memory is limited", func() bool { return n.raw(b, model.MemoryHigh) > 0 },
		func() string { return n.text(b, "memory.high") })
	first := n.raw(b, model.MemoryHigh)
	if first < had {
		t.Errorf("the memory limit is %d while the pod has %d and more", first, had)
	}
	cached := func() bool { return n.stat(b).InactiveFile+n.stat(b).ActiveFile > 16*mib }
	waitFor(t, patience, "the cache is reclaimed", func() bool { return !cached() },
		func() string { return fmt.Sprintf("%d MiB are cached of %d", n.stat(b).InactiveFile/mib, had/mib) })
	within(t, "free memory stays free", func() bool { return n.raw(b, model.MemoryHigh) < first-had/2 },
		func() string { return n.text(b, "memory.high") })
	requested, freed := metric(t, r.agent, v1alpha1.MetricReclaimRequested, "", ""),
		metric(t, r.agent, v1alpha1.MetricReclaimFreed, "", "")
	t.Logf("of %d MiB of cache the kernel reclaimed %.0f, requested %.0f; the limit is %d MiB instead of %d", had/mib,
		freed/mib, requested/mib, n.raw(b, model.MemoryHigh)/mib, first/mib)
	if freed < requested/2 || freed == 0 {
		t.Errorf("the agent requested %.0f bytes and the kernel reclaimed %.0f", requested, freed)
	}
	if err := r.agent.Healthy(); err != nil {
		t.Error(err)
	}
	waterline(1000)
	n.expect(b, model.MemoryHigh, model.Unlimited)
	if h.ended() {
		t.Error("the process was killed")
	}
	var requests, results bool
	for round, err := range journal.Read(r.dir) {
		if err != nil {
			continue // the last line may be half written
		}
		requests = requests || round.Plan.Reclaim != nil && round.Plan.Reclaim.UID == "b"
		freed := round.Node.Reclaimed
		results = results || freed != nil && freed.UID == "b" && freed.Requested > 0
	}
	if !requests || !results {
		t.Errorf("the journal has requested memory: %v, reclaimed memory: %v", requests, results)
	}
}

// TestReclaimer records the kernel's results of memory.reclaim, and checks that a write has a bounded duration.
func TestReclaimer(t *testing.T) {
	n := newMemoryNode(t)
	needSwap(t)
	dir := n.pod(model.BestEffort, "b", 0, "0123456789bb")
	n.hold(dir + "/0123456789bb").do("anon")
	ask := func(timeout time.Duration, dir string) model.Reclaimed {
		t.Helper()
		r, err := acthost.NewReclaimer(n.mount.Memory, timeout)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); r.Run(ctx) }()
		defer func() { cancel(); <-ended }()
		r.Ask(model.Reclaim{UID: "b", Dir: dir, Bytes: 1 << 30})
		return <-r.Done()
	}
	if got := ask(time.Millisecond, dir); got.Failed != "EINTR" {
		t.Errorf("with too short a time: %+v", got)
	}
	// Go's scheduler sends such signals too.
	signals, quiet := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(quiet)
		for {
			select {
			case <-signals:
				return
			case <-time.After(10 * time.Millisecond):
			}
			tasks, _ := os.ReadDir("/proc/self/task")
			for _, task := range tasks {
				if tid, err := strconv.Atoi(task.Name()); err == nil {
					_ = unix.Tgkill(os.Getpid(), tid, unix.SIGURG)
				}
			}
		}
	}()
	got := ask(time.Minute, dir)
	close(signals)
	<-quiet
	if got.Failed != "EAGAIN" || got.Freed < 16*mib {
		t.Errorf("of more than the group has: %+v", got)
	}
	if got := ask(time.Minute, dir+"/gone"); got.Failed != "ENOENT" || got.Freed != 0 {
		t.Errorf("of a removed group: %+v", got)
	}
}

// TestUnclaimedProtection records why groups above pods have only the used part of the protection. The kernel
// distributes protection beyond that to batch, and reclaims memory of their siblings instead.
func TestUnclaimedProtection(t *testing.T) {
	n := newMemoryNode(t)
	needSwap(t)
	top := path.Dir(n.layout.Root)
	daemons, b := top+"/system", n.pod(model.BestEffort, "b", 0, "0123456789bb")
	n.group(daemons)
	n.pod(model.Burstable, "a", 100) // all unclaimed protection is its own, and it uses nothing
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
	t.Logf("of 64 MiB the daemon lost %d to batch with the whole protection on the parent groups, "+
		"and %d with the used part", promised/mib, used/mib)
	if promised < used+8*mib {
		t.Error("no difference: the parent groups could have the whole protection")
	}
}

// anon returns the anonymous memory of the processes in a group.
func (n *testNode) anon(dir string) int64 { return n.stat(dir).Anon }

func (n *testNode) stat(dir string) cgroup.MemoryStat {
	n.t.Helper()
	stat, err := cgroup.ParseMemoryStat(n.mount.Version, []byte(n.text(dir, "memory.stat")+"\n"))
	if err != nil {
		n.t.Fatal(err)
	}
	return stat
}
