package kernel_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/internal/agent"
	"github.com/waterline-io/waterline/internal/agent/serve"
	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// suppressNode is a node with an online pod and a batch pod, on an imagined machine that does nothing else. Otherwise
// batch's allowance would depend on the processes beside the tests.
type suppressNode struct {
	*meterNode
	source   *pods
	web, job string // directories
	proc     string
	stat     atomic.Int64
	milli    int64 // of the machine
	run      *run
}

func newSuppressNode(t *testing.T) *suppressNode {
	n := &suppressNode{meterNode: newMeterNode(t), source: newPods(), milli: int64(runtime.NumCPU()) * 1000}
	n.outweigh()
	n.web = n.add("web")
	n.job = n.addBatch("job")
	n.set(n.layout.Class(model.BestEffort), model.Shares, model.MinShares)
	n.set(n.layout.Class(model.Burstable), model.Shares, 10_000)
	n.source.change(func(s *model.Snapshot) { s.Allocatable.CPU = n.milli })
	web := burstable("web", 500, 0)
	web.Class = model.ClassLS
	n.source.set(web)
	n.source.set(batch("job", model.Grant{RequestMilli: 1000}, "0123456789aa"))
	n.imagine()
	return n
}

// outweigh gives the test's group a weight that far exceeds that of other processes on this machine: they would take
// CPU time from online pods, whose usage and waits decide what pods may use.
func (n *meterNode) outweigh() {
	n.t.Helper()
	n.set(filepath.Dir(n.layout.Root), model.Shares, 16*model.SharesPerCPU)
}

// addBatch makes a BestEffort pod with one container.
func (n *suppressNode) addBatch(uid string) string {
	n.t.Helper()
	dir := n.layout.Pod(model.BestEffort, uid)
	n.mkdir(dir)
	n.count(dir)
	n.group(dir + "/0123456789aa")
	n.count(dir + "/0123456789aa")
	return dir
}

// Content of the imagined /proc/stat.
const (
	goesOn int64 = iota
	standsStill
	isEmpty
)

// imagine keeps up a /proc in which only the node's pods use the CPUs. It has no pressure.
func (n *suppressNode) imagine() {
	n.t.Helper()
	n.proc = n.t.TempDir()
	for _, file := range []string{"meminfo", "zoneinfo"} {
		content, err := os.ReadFile(filepath.Join("/proc", file))
		if err == nil {
			err = os.WriteFile(filepath.Join(n.proc, file), content, 0o600)
		}
		if err != nil {
			n.t.Fatal(err)
		}
	}
	f, err := os.Create(filepath.Join(n.proc, "stat"))
	if err != nil {
		n.t.Fatal(err)
	}
	began := time.Now()
	idle := time.Duration(0)
	write := func() {
		switch n.stat.Load() {
		case goesOn:
			// The idle time is longer than possible. However late this is written, nothing outside of pods seems to use CPU.
			idle = 3 * time.Since(began) * time.Duration(runtime.NumCPU())
		case isEmpty:
			if err := f.Truncate(0); err != nil {
				n.t.Error(err)
			}
			return
		}
		text := fmt.Sprintf("cpu  0 0 0 %012d 0 0 0 0 0 0\n%sprocs_running 1\n", idle/(10*time.Millisecond),
			strings.Repeat("cpuN 0\n", runtime.NumCPU()))
		if _, err := f.WriteAt([]byte(text), 0); err != nil {
			n.t.Error(err)
		}
	}
	write()
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for tick := time.NewTicker(10 * time.Millisecond); ; {
			select {
			case <-stop:
				return
			case <-tick.C:
				write()
			}
		}
	}()
	n.t.Cleanup(func() { close(stop); <-done; f.Close() })
}

// agentBy starts an agent that suppresses batch by a method, up to the whole machine.
func (n *suppressNode) agentBy(by model.SuppressMethod) *run {
	n.t.Helper()
	r := n.start(n.source, func(c *agent.Config) { c.Proc = n.proc })
	n.run = r
	r.set(func(p *model.Policy) {
		p.CPU, p.Suppress.By = model.SellPolicy{Method: model.SellRealtime, Waterline: 1000}, by
	})
	within(n.t, "ready", func() bool { return r.agent.Ready() == nil },
		func() string { return fmt.Sprint(r.agent.Ready()) })
	return r
}

// set changes the policy.
func (r *run) set(change func(*model.Policy)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.policy)
}

// cores returns the CPU that the batch pod may use by its quota, in milli-cores; without a quota, the whole machine.
func (n *suppressNode) cores() int64 {
	quota := n.raw(n.job, model.Quota)
	if quota == model.Unlimited {
		return n.milli
	}
	return quota / 100
}

// cpus returns the CPUs on which the batch pod may run.
func (n *suppressNode) cpus() model.CPUSet {
	dir := n.job + "/0123456789aa"
	text, err := os.ReadFile(filepath.Join(n.mount.Cpusets, dir, cgroup.EffectiveFile(n.mount.Version)))
	if err != nil {
		n.t.Fatal(err)
	}
	set, err := model.ParseCPUs(strings.TrimSpace(string(text)))
	if err != nil {
		n.t.Fatal(err)
	}
	return set
}

// until waits for a condition.
func (n *suppressNode) until(what string, holds func() bool) {
	n.t.Helper()
	waitFor(n.t, patience, what, holds, func() string {
		answer := httptest.NewRecorder()
		serve.Handler(n.run.agent.View, "").ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/node", nil))
		return fmt.Sprintf("batch may use %d mCPU; %s", n.cores(), answer.Body)
	})
}

// load starts a process in a pod that uses one CPU.
func (n *suppressNode) load(dir string) *exec.Cmd {
	n.t.Helper()
	cmd := n.meterNode.run(dir, "sh", "-c", "while :; do :; done")
	if err := cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	inside := func() string { return n.text(dir+"/0123456789aa", "cgroup.procs") }
	within(n.t, "the load is in its pod",
		func() bool { return slices.Contains(strings.Fields(inside()), fmt.Sprint(cmd.Process.Pid)) }, inside)
	return cmd
}

func end(cmd *exec.Cmd) {
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

// TestSuppress lets online load rise and fall beside batch that would use every CPU.
func TestSuppress(t *testing.T) {
	liveKernel(t, "TestSuppressFrozen shows on cgroup v2 how quotas are written. The use of an emulated CPU follows no "+
		"load while other programs need the CPU beneath it")
	n := newSuppressNode(t)
	r := n.agentBy(model.SuppressByArithmetic)
	for range runtime.NumCPU() {
		n.load(n.job)
	}
	many := 2
	if soak() {
		many = 20
	}
	n.swings(many)

	t.Log("the agent ends under full load: the kernel's settings protect online pods")
	online := n.load(n.web)
	n.until("batch makes room", func() bool { return n.cores() <= n.milli-rise })
	r.stop()
	before := n.cores()
	time.Sleep(1500 * time.Millisecond)
	if now := n.cores(); now != before {
		t.Errorf("without an agent, batch may use %d mCPU, not %d", now, before)
	}
	end(online)

	t.Log("another agent continues from there, and restores every file when it need not suppress batch")
	r = n.agentBy(model.SuppressByArithmetic)
	n.until("batch may use the whole machine", func() bool { return n.cores() >= n.milli*85/100 })
	r.set(func(p *model.Policy) { p.Suppress.By = model.SuppressByNone })
	n.expect(n.job, model.Quota, model.Unlimited)
}

// swings lets online load rise and fall several times. Each time batch must have less, and get it back. It returns how
// long both took.
func (n *suppressNode) swings(count int) (down, up []time.Duration) {
	n.t.Helper()
	for range count {
		began := time.Now()
		n.until("batch may use the whole machine", func() bool { return n.cores() >= n.milli*85/100 })
		up = append(up, time.Since(began))
		// otherwise the load would count as one that swings, for which batch is not moved each time
		time.Sleep(4 * time.Second)
		before := n.cores() // batch may make room before the load is known to be in its pod
		online := n.load(n.web)
		began = time.Now()
		n.until("batch makes room", func() bool { return n.cores() <= before-rise })
		down = append(down, time.Since(began))
		time.Sleep(2 * time.Second) // the agent measures how high the load is, and that it lasts
		end(online)
	}
	return down, up
}

// TestSuppressByCPUSet does the same with CPU sets, and with a quota below one CPU.
func TestSuppressByCPUSet(t *testing.T) {
	n := newSuppressNode(t)
	if n.mount.Cpusets == "" || runtime.NumCPU() < 8 {
		t.Skip("live kernel: no CPU sets, or fewer than eight CPUs, where quotas limit batch")
	}
	all := n.cpus()
	r := n.agentBy(model.SuppressByArithmetic)
	for range runtime.NumCPU() {
		n.load(n.job)
	}
	var online []*exec.Cmd
	for range runtime.NumCPU() {
		online = append(online, n.load(n.web))
	}
	n.until("batch runs on one core", func() bool { return n.cpus().Len() <= 2 })
	n.until("batch uses a small part of it", func() bool { return n.cores() < 1000 })
	if other := n.layout.Class(model.BestEffort); n.raw(other, model.Quota) != model.Unlimited {
		t.Error("the class BestEffort, which has other pods too, has a quota")
	}
	var allowed unix.CPUSet
	pids := strings.Fields(n.text(n.web+"/0123456789aa", "cgroup.procs"))
	if len(pids) == 0 || unix.SchedGetaffinity(number(t, pids[0]), &allowed) != nil || allowed.Count() != all.Len() {
		t.Errorf("the online pod runs on %d CPUs of %d", allowed.Count(), all.Len())
	}
	for _, cmd := range online {
		end(cmd)
	}
	n.until("batch has as many CPUs as fit", func() bool { return n.cpus().Len() >= all.Len()-2 && n.cores() == n.milli })
	r.set(func(p *model.Policy) { p.Mode = model.ModeDisabled })
	n.until("batch has all CPUs back", func() bool { return n.cpus() == all })
}

// TestSuppressOnHarm lets batch have the whole machine while an online pod hardly waits, then gives batch a weight that
// makes the pod wait. The machine is the real one, because waits are those of real tasks.
func TestSuppressOnHarm(t *testing.T) {
	liveKernel(t, "TestCPUOnHarm shows it on cgroup v2")
	onHarm(t)
}

// onHarm returns how long it takes until batch is pushed back.
func onHarm(t *testing.T) (back []time.Duration) {
	t.Helper()
	n := newSuppressNode(t)
	n.proc = ""
	r := n.agentBy(model.SuppressOnHarm)
	for range runtime.NumCPU() {
		n.load(n.job)
	}
	online := n.load(n.web)
	unlimited := func() bool { return n.raw(n.job, model.Quota) == model.Unlimited }
	times := 1
	if soak() {
		times = 20
	}
	for range times {
		n.until("batch may use the whole machine", func() bool {
			free := false
			_ = r.agent.View(t.Context(), func(v *agent.View) {
				p := v.Plan
				free = p.Suppress != nil && p.Suppress.Reason.Code == model.BatchFree && p.Harm.Signal == model.HarmByDelay
			})
			return free && unlimited()
		})
		n.set(n.layout.Class(model.BestEffort), model.Shares, 40_000)
		began := time.Now()
		n.until("batch is pushed back", func() bool { return !unlimited() })
		back = append(back, time.Since(began))
		limited := n.cores()
		if limited > n.milli*95/100 {
			t.Errorf("batch may use %d of %d mCPU while the online pod waits", limited, n.milli)
		}
		n.set(n.layout.Class(model.BestEffort), model.Shares, model.MinShares)
		n.until("batch gets more again", func() bool { return n.cores() > limited+n.milli/50 })
	}
	end(online)
	r.set(func(p *model.Policy) { p.Suppress.By = model.SuppressByNone })
	n.expect(n.job, model.Quota, model.Unlimited)
	return back
}

func number(t *testing.T, text string) (n int) {
	t.Helper()
	if _, err := fmt.Sscan(text, &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestStartsWithoutTheAPI checks that an agent that starts while the API server is away goes on suppressing the batch
// pods that an earlier agent of this boot knew, and is not ready.
func TestStartsWithoutTheAPI(t *testing.T) {
	n := newSuppressNode(t)
	dir := memoryDir(t)
	away := newPods()
	away.change(func(s *model.Snapshot) { *s = model.Snapshot{} })
	for _, source := range []*pods{n.source, away} {
		r := n.start(source, func(c *agent.Config) { c.Proc, c.RunDir = n.proc, dir })
		r.set(func(p *model.Policy) {
			p.CPU, p.Suppress.By = model.SellPolicy{Method: model.SellRealtime, Waterline: 1000}, model.SuppressByArithmetic
		})
		var got *model.Suppression
		within(t, "batch is suppressed", func() bool {
			err := r.agent.View(t.Context(), func(v *agent.View) { got = v.Plan.Suppress })
			return err == nil && got != nil && len(got.Parts) == 1 && got.Parts[0].UID == "job"
		}, func() string { return fmt.Sprintf("%+v", got) })
		if err := r.agent.Ready(); (err == nil) != (source == n.source) {
			t.Errorf("an agent that sees the API: %v; its readiness: %v", source == n.source, err)
		}
		r.stop()
	}
}
