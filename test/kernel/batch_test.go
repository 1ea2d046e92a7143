package kernel_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/agent"
	"github.com/waterline-io/waterline/internal/agent/restore"
	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

const mib = 1 << 20

// newBatchNode makes a node whose groups have memory limits. It skips the test where the kernel has no memory
// controller.
func newBatchNode(t *testing.T) *testNode {
	n := newNode(t)
	if n.mount.Memory == "" {
		t.Skip("live kernel: no memory controller")
	}
	n.memory = true
	n.delegate("")
	for _, dir := range []string{filepath.Dir(n.layout.Root), n.layout.Root, n.layout.Class(model.Burstable),
		n.layout.Class(model.BestEffort)} {
		n.mkdir(dir)
	}
	return n
}

// batch returns a pod that requests batch resources, in containers that request the same amounts each.
func batch(uid string, each model.Grant, ids ...string) model.Pod {
	n := int64(max(len(ids), 1))
	pod := model.Pod{
		UID: uid, APIUID: uid, Namespace: "default", Name: uid, QoS: model.BestEffort, Class: model.ClassBE,
		Tier:  model.TierBatch,
		Grant: model.Grant{RequestMilli: n * each.RequestMilli, LimitMilli: n * each.LimitMilli, Memory: n * each.Memory},
	}
	for i, id := range ids {
		pod.Containers = append(pod.Containers, model.Container{Name: fmt.Sprintf("c%d", i), ID: id, Grant: each})
	}
	return pod
}

// expectGrant waits until a group has the settings of a grant.
func (n *testNode) expectGrant(dir string, shares int64, g model.Grant) {
	n.t.Helper()
	quota, memory := int64(model.Unlimited), int64(model.Unlimited)
	if g.LimitMilli != 0 {
		quota = model.MilliCPUToQuota(g.LimitMilli, model.DefaultQuotaPeriod)
	}
	if g.Memory != 0 {
		memory = g.Memory - g.Memory%int64(os.Getpagesize())
	}
	n.expect(dir, model.Shares, shares)
	n.expect(dir, model.Quota, quota)
	n.expect(dir, model.MemoryMax, memory)
}

// TestMemoryMax records how the kernel treats memory limits.
func TestMemoryMax(t *testing.T) {
	n := newBatchNode(t)
	dir := n.pod(model.BestEffort, "a", 0, "0123456789ab")
	if got := n.raw(dir, model.MemoryMax); got != model.Unlimited {
		t.Errorf("a new group has a limit of %d", got)
	}
	page := int64(os.Getpagesize())
	n.set(dir, model.MemoryMax, 100*page+page-1)
	if got := n.raw(dir, model.MemoryMax); got != 100*page {
		t.Errorf("after a write of 100 pages and a fraction, the limit reads %d", got)
	}
	n.set(dir+"/0123456789ab", model.MemoryMax, 200*page) // above the pod's limit: both cgroup versions accept that
	n.set(dir, model.MemoryMax, model.Unlimited)
	if got := n.raw(dir, model.MemoryMax); got != model.Unlimited {
		t.Errorf("without a limit, the file reads %d", got)
	}
	n.set(dir+"/0123456789ab", model.MemoryMax, model.Unlimited)
	h := n.hold(dir + "/0123456789ab")
	h.do("anon")
	err := n.try(dir, model.MemoryMax, 8*mib)
	switch {
	case n.mount.Version == cgroup.V1 && (!errors.Is(err, unix.EBUSY) || n.raw(dir, model.MemoryMax) != model.Unlimited ||
		h.ended()):
		t.Errorf("v1: a limit below the usage: %v, ended: %v, want EBUSY", err, h.ended())
	case n.mount.Version == cgroup.V2 && (err != nil || n.raw(dir, model.MemoryMax) != 8*mib):
		t.Errorf("v2: a limit below the usage: %v", err)
	case n.mount.Version == cgroup.V2:
		within(t, "the process is killed", h.ended, func() string { return "it runs" })
	}
}

// newcomers lets the agent know pods of two containers before their cgroups exist. Each must get its settings. It
// returns how long that took from before a pod's cgroup was made.
func (n *testNode) newcomers(source *pods, count int, each, twice model.Grant) (took []time.Duration) {
	n.t.Helper()
	for i := range count {
		uid := fmt.Sprintf("a%d", i)
		source.set(batch(uid, each, "", ""))
		time.Sleep(20 * time.Millisecond) // the agent reads of the pod
		began := time.Now()
		dir := n.pod(model.BestEffort, uid, 0)
		n.expectGrant(dir, 2*model.MilliCPUToShares(each.RequestMilli), twice)
		took = append(took, time.Since(began))
		if processes := n.text(dir, "cgroup.procs"); processes != "" {
			n.t.Errorf("%s has processes: %s", dir, processes)
		}
	}
	return took
}

// TestBatch walks batch pods through their lives. Their settings are written before their first process runs, and
// restored after another writer.
func TestBatch(t *testing.T) {
	n := newBatchNode(t)
	source := newPods()
	each := model.Grant{RequestMilli: 1500, LimitMilli: 2000, Memory: 100_000_001} // not whole pages
	twice := model.Grant{LimitMilli: 4000, Memory: 2 * each.Memory}
	r := n.start(source, func(c *agent.Config) { c.SyncPeriod = 100 * time.Millisecond })
	within(t, "ready", func() bool { return r.agent.Ready() == nil }, func() string { return r.agent.Ready().Error() })

	t.Log("the pod is known before its cgroup exists, but not its containers; none of its processes runs yet")
	n.newcomers(source, 5, each, twice)

	t.Log("its containers follow")
	a := n.layout.Pod(model.BestEffort, "a0")
	ids := []string{"0123456789aa", "0123456789bb"}
	for _, id := range ids {
		n.group(a + "/" + id)
		n.set(a+"/"+id, model.Shares, model.MinShares)
	}
	source.set(batch("a0", each, ids...))
	for _, id := range ids {
		n.expectGrant(a+"/"+id, 1536, each)
	}

	t.Log("the agent repairs another writer's values, of pod and container")
	for _, dir := range []string{a, a + "/0123456789aa"} {
		limits, shares := twice, int64(3072)
		if dir != a {
			limits, shares = each, 1536
		}
		n.set(dir, model.Shares, 2)
		n.set(dir, model.Quota, model.Unlimited)
		n.set(dir, model.MemoryMax, model.Unlimited)
		n.expectGrant(dir, shares, limits)
		n.set(dir, model.MemoryMax, 64*mib)
		n.expectGrant(dir, shares, limits)
	}

	t.Log("the agent repeats no write, though the limits are not whole pages")
	writes := func() float64 { return metric(t, r.agent, v1alpha1.MetricWrites, "file", model.MemoryMax.String()) }
	r.rests(t, "write of a limit", 10, writes)

	t.Log("a process meets the limit")
	h := n.hold(a + "/0123456789aa")
	h.do("anon")
	source.set(batch("a0", model.Grant{RequestMilli: 1500, Memory: 256 * mib}, ids...))
	n.expectGrant(a, 3072, model.Grant{Memory: 512 * mib})
	n.expectGrant(a+"/0123456789aa", 1536, model.Grant{Memory: 256 * mib})

	t.Log("mode Disabled restores every file")
	mode := func(m model.Mode) {
		r.mu.Lock()
		r.policy.Mode = m
		r.mu.Unlock()
	}
	mode(model.ModeDisabled)
	for _, dir := range []string{a, a + "/0123456789aa", a + "/0123456789bb"} {
		n.expectGrant(dir, model.MinShares, model.Grant{})
	}
	mode(model.ModeEnforce)
	n.expectGrant(a, 3072, model.Grant{Memory: 512 * mib})

	t.Log("waterline restore restores every file too")
	r.stop()
	if restored, err := restore.Restore(t.Context(), restore.Config{CgroupRoot: "/sys/fs/cgroup", RunDir: r.dir,
		Pods: source}); err != nil || len(restored) == 0 {
		t.Errorf("restoring: %+v, %v", restored, err)
	}
	for _, dir := range []string{a, a + "/0123456789aa", n.layout.Pod(model.BestEffort, "a1")} {
		n.expectGrant(dir, model.MinShares, model.Grant{})
	}
	if h.ended() {
		t.Error("the process was killed")
	}
}

// TestMemoryInUse checks a pod that existed before the agent and uses more than its limit. The kernel neither kills nor
// throttles it. It gets its limit when it uses less.
func TestMemoryInUse(t *testing.T) {
	t.Parallel() // it mostly waits
	n := newBatchNode(t)
	a := n.pod(model.BestEffort, "a", 0, "0123456789aa", "0123456789bb")
	h := n.hold(a + "/0123456789aa")
	h.do("anon")
	source := newPods()
	each := model.Grant{RequestMilli: 1000, Memory: 24 * mib}
	source.set(batch("a", each, "0123456789aa", "0123456789bb"))
	var mu sync.Mutex
	told := 0
	r := n.start(source, func(c *agent.Config) {
		c.SyncPeriod = 100 * time.Millisecond
		c.API.Notify = func(_ context.Context, notice model.Notice) error {
			mu.Lock()
			defer mu.Unlock()
			if notice.Reason.Code == model.MemoryInUse && notice.Name == "a" {
				told++
			}
			return nil
		}
	})
	n.expectGrant(a+"/0123456789bb", 1024, each) // this pod uses no memory
	r.pass(t, 10)
	for _, dir := range []string{a, a + "/0123456789aa"} {
		if got := n.raw(dir, model.MemoryMax); got != model.Unlimited || h.ended() {
			t.Fatalf("%s is limited to %d while 64 MiB are in use; ended: %v", dir, got, h.ended())
		}
	}
	events := func() int { mu.Lock(); defer mu.Unlock(); return told }
	within(t, "the kernel counts an event", func() bool { return events() > 0 }, func() string { return "none" })
	if got := events(); got > 2 {
		t.Errorf("%d events, want one for each limit", got)
	}
	if refused := metric(t, r.agent, v1alpha1.MetricRejected, "file", model.MemoryMax.String()); refused != 0 {
		t.Errorf("the agent wrote %v limits that the kernel would refuse or kill for", refused)
	}
	h.do("free")
	n.expectGrant(a, 2048, model.Grant{Memory: 48 * mib})
	n.expectGrant(a+"/0123456789aa", 1024, each)
	if h.ended() {
		t.Error("the process was killed")
	}
}

// holder is a process in a group that keeps memory allocated, see [TestMemoryHolder].
type holder struct {
	t    testing.TB
	in   io.WriteCloser
	out  *bufio.Reader
	done chan struct{}
}

// hold starts a holder.
func (n *testNode) hold(dir string) *holder {
	n.t.Helper()
	self, err := os.Executable()
	if err != nil {
		n.t.Fatal(err)
	}
	files := []string{n.path(dir, "cgroup.procs")}
	if n.mount.Memory != n.mount.Path {
		files = append(files, filepath.Join(n.mount.Memory, dir, "cgroup.procs"))
	}
	cmd := exec.Command("sh", "-c", `for f in $FILES; do echo $$ >$f || exit 1; done; exec "$@"`, "sh", self, "-test.run",
		"^TestMemoryHolder$")
	cmd.Env = append(os.Environ(), "FILES="+strings.Join(files, " "), holdEnv+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, inErr := cmd.StdinPipe()
	out, outErr := cmd.StdoutPipe()
	if err := errors.Join(inErr, outErr, cmd.Start()); err != nil {
		n.t.Fatal(err)
	}
	h := &holder{t: n.t, in: in, out: bufio.NewReader(out), done: make(chan struct{})}
	go func() { _ = cmd.Wait(); close(h.done) }()
	n.t.Cleanup(func() { _ = cmd.Process.Kill(); <-h.done })
	return h
}

func (h *holder) do(what string) {
	h.t.Helper()
	if _, err := io.WriteString(h.in, what+"\n"); err != nil {
		h.t.Fatal(err)
	}
	if line, err := h.out.ReadString('\n'); err != nil || line != "done\n" {
		h.t.Fatalf("%s: %q, %v", what, line, err)
	}
}

// end ends the process and waits for its end.
func (h *holder) end() {
	_ = h.in.Close()
	<-h.done
}

// ended reports whether the process has ended, or ends within a moment.
func (h *holder) ended() bool {
	select {
	case <-h.done:
		return true
	case <-time.After(200 * time.Millisecond):
		return false
	}
}
