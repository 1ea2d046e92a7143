package kernel_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waterline-io/waterline/api/v1alpha1"
	acthost "github.com/waterline-io/waterline/internal/act/host"
	"github.com/waterline-io/waterline/internal/agent"
	"github.com/waterline-io/waterline/internal/agent/faillog"
	"github.com/waterline-io/waterline/internal/agent/kernel"
	"github.com/waterline-io/waterline/internal/agent/kubelet"
	"github.com/waterline-io/waterline/internal/agent/restore"
	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/decide/node"
	"github.com/waterline-io/waterline/internal/journal"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/host"
	"github.com/waterline-io/waterline/internal/observe/kube"
	"github.com/waterline-io/waterline/test/fixture"
)

// pods is a source of pods that the test sets.
type pods struct {
	wake chan struct{}
	mu   sync.Mutex
	now  model.Snapshot
}

func newPods() *pods {
	return &pods{wake: make(chan struct{}, 1),
		now: model.Snapshot{Known: true, NodeInfo: model.NodeInfo{Allocatable: model.Amount{CPU: 64_000}}}}
}

func (p *pods) Run(ctx context.Context) { <-ctx.Done() }

func (p *pods) Wake() <-chan struct{} { return p.wake }

func (p *pods) Snapshot() model.Snapshot {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now
}

// set replaces or adds a pod.
func (p *pods) set(pod model.Pod) {
	p.change(func(s *model.Snapshot) {
		s.Pods = slices.DeleteFunc(slices.Clone(s.Pods), func(q *model.Pod) bool { return q.UID == pod.UID })
		s.Pods = append(s.Pods, &pod)
		slices.SortFunc(s.Pods, func(a, b *model.Pod) int { return strings.Compare(a.UID, b.UID) })
	})
}

// remove removes a pod.
func (p *pods) remove(uid string) {
	p.change(func(s *model.Snapshot) {
		s.Pods = slices.DeleteFunc(slices.Clone(s.Pods), func(q *model.Pod) bool { return q.UID == uid })
	})
}

func (p *pods) change(f func(s *model.Snapshot)) {
	p.mu.Lock()
	f(&p.now)
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// burstable returns a Burstable pod with a CPU request. Its annotation has these shares; 0: no annotation.
func burstable(uid string, requestMilli, shares int64) model.Pod {
	return model.Pod{
		UID: uid, APIUID: uid, Namespace: "default", Name: uid, QoS: model.Burstable, RequestMilli: requestMilli,
		Annotations: model.PodAnnotations{Shares: shares},
	}
}

// run is an agent that runs in this process.
type run struct {
	agent  *agent.Agent
	policy model.Policy
	mu     sync.Mutex
	dir    string
	stop   func()
}

// start runs an agent on the node until the test ends or stop is called.
func (n *testNode) start(source agent.Pods, change func(*agent.Config)) *run {
	n.t.Helper()
	r := &run{policy: fixture.Policy(), dir: memoryDir(n.t)} // on a disk, the agent may wait for other processes
	cfg := agent.Config{
		Sys:        host.DefaultSys,
		CgroupRoot: "/sys/fs/cgroup", Kubepods: n.layout.Root, RunDir: r.dir, SyncPeriod: 10 * time.Second,
		JournalBytes: 64 << 20,
		Policies: func() ([]model.ClusterPolicy, error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			return []model.ClusterPolicy{{Rollout: model.DefaultRollout, Policy: r.policy}}, nil
		},
		Pods: source,
		Kubelet: func(log *faillog.Log) agent.Kubelet {
			defaults := func(context.Context) (model.Kubelet, error) { return kube.DefaultKubelet(), nil }
			return kubelet.New(kubelet.Poller{Settings: defaults, Pods: source.Snapshot, Log: log})
		},
		Log: slog.New(slog.NewTextHandler(n.t.Output(), nil)),
	}
	if change != nil {
		change(&cfg)
	}
	r.dir = cfg.RunDir
	r.agent = agent.New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.agent.Run(ctx) }()
	var once sync.Once
	r.stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				n.t.Errorf("the agent stopped: %v", err)
			}
		})
	}
	n.t.Cleanup(r.stop)
	return r
}

// TestAgent walks one pod through its life.
func TestAgent(t *testing.T) {
	n := newNode(t)
	class := n.layout.Class(model.Burstable)
	source := newPods()
	source.set(burstable("a", 500, 2048))
	source.set(burstable("b", 250, 0))
	r := n.start(source, func(c *agent.Config) { c.SyncPeriod = time.Hour }) // so no audit finds what follows

	t.Log("as usual, the pod is known before its cgroup exists; the kubelet's own first write comes later")
	a := n.pod(model.Burstable, "a", 500, "0123456789aa")
	n.expect(a, model.Shares, 2048)
	n.set(class, model.Shares, 768)
	n.expect(class, model.Shares, 2048+256)

	t.Log("the agent repairs another writer's value")
	n.set(a, model.Shares, 512)
	n.expect(a, model.Shares, 2048)

	t.Log("the annotation changes")
	source.set(burstable("a", 500, 4096))
	n.expect(a, model.Shares, 4096)
	n.expect(class, model.Shares, 4096+256)

	t.Log("a cgroup comes first, its pod later")
	b := n.pod(model.Burstable, "b", 250)
	source.set(burstable("b", 250, 8192))
	n.expect(b, model.Shares, 8192)

	t.Log("quotas are lifted in the kernel's order, for later containers too, and restored")
	n.set(a, model.Quota, 100_000)
	n.set(a+"/0123456789aa", model.Quota, 80_000)
	limited := burstable("a", 500, 4096)
	limited.LimitMilli = 1000
	limited.Containers = []model.Container{{Name: "c", ID: "0123456789aa", LimitMilli: 800}}
	limited.Annotations.Quota = model.QuotaUnlimited
	source.set(limited)
	n.expect(a, model.Quota, model.Unlimited)
	n.expect(a+"/0123456789aa", model.Quota, model.Unlimited)
	n.set(a+"/0123456789aa", model.Quota, 70_000) // another writer, in a container's directory
	n.expect(a+"/0123456789aa", model.Quota, model.Unlimited)
	n.set(a+"/0123456789aa", model.Quota, 80_000)
	n.expect(a+"/0123456789aa", model.Quota, model.Unlimited)
	if err := os.Mkdir(n.path(a, "0123456789cc"), 0o755); err != nil {
		t.Fatal(err)
	}
	n.set(a+"/0123456789cc", model.Quota, 30_000)
	n.expect(a+"/0123456789cc", model.Quota, model.Unlimited)
	limited.Annotations.Quota = ""
	source.set(limited)
	n.expect(a, model.Quota, 100_000)
	n.expect(a+"/0123456789aa", model.Quota, 80_000)
	n.expect(a+"/0123456789cc", model.Quota, 30_000) // in an unknown container: the recorded value

	t.Log("the cgroup is made again under the same name")
	n.remove(a)
	a = n.pod(model.Burstable, "a", 500)
	n.expect(a, model.Shares, 4096)
	if got := r.audits(t); got > 1 {
		t.Errorf("%v audits: an event was missed, and the test shows nothing", got)
	}

	t.Log("mode Disabled restores every file")
	r.mu.Lock()
	r.policy.Mode = model.ModeDisabled
	r.mu.Unlock()
	n.expect(a, model.Shares, 512)
	n.expect(b, model.Shares, 256)
	n.expect(class, model.Shares, 768)
	r.mu.Lock()
	r.policy.Mode = model.ModeEnforce
	r.mu.Unlock()
	n.expect(a, model.Shares, 4096)

	t.Log("removing the annotations restores the kubelet's values")
	source.set(burstable("a", 500, 0))
	source.set(burstable("b", 250, 0))
	n.expect(a, model.Shares, 512)
	n.expect(class, model.Shares, 768)

	t.Log("stopping leaves the last values")
	source.set(burstable("a", 500, 2048))
	n.expect(a, model.Shares, 2048)
	r.stop()
	if !n.holds(a, model.Shares, 2048) {
		t.Errorf("after stopping, the weight is %d", n.raw(a, model.Shares))
	}

	t.Log("the journal replays every round")
	rounds := 0
	for round, err := range journal.Read(r.dir) {
		if err != nil {
			t.Fatal(err)
		}
		rounds++
		plan, _ := node.Decide(round.Node, round.Policy, round.State)
		if len(plan.Settings) != len(round.Plan.Settings) {
			t.Fatalf("round %d is decided differently:\n%+v\n%+v", rounds, plan, round.Plan)
		}
		for i, s := range plan.Settings {
			if s.File != round.Plan.Settings[i].File || s.Value != round.Plan.Settings[i].Value ||
				s.Reason.String() != round.Plan.Settings[i].Reason.String() {
				t.Fatalf("round %d: %+v, was %+v", rounds, s, round.Plan.Settings[i])
			}
		}
	}
	if rounds < 10 {
		t.Errorf("the journal has %d rounds", rounds)
	}
}

// TestRejected checks that the agent repeats a write that the kernel refused only after something changed.
func TestRejected(t *testing.T) {
	n := newNode(t)
	if n.mount.Version != cgroup.V1 {
		t.Skip("only v1 refuses a quota because of another group's")
	}
	source := newPods()
	pod := burstable("a", 500, 2048)
	pod.LimitMilli = 1000
	pod.Annotations.Quota = model.QuotaUnlimited
	a := n.pod(model.Burstable, "a", 500)
	n.set(a, model.Quota, 100_000)
	source.set(pod)
	r := n.start(source, func(c *agent.Config) { c.SyncPeriod = 10 * time.Millisecond })
	n.expect(a, model.Quota, model.Unlimited)
	// no kubelet sets this period; a quota of 100 ms no longer fits
	n.set(n.layout.Class(model.Burstable), model.Quota, 50_000)
	pod.Annotations.Quota = ""
	source.set(pod)
	refused := func() float64 {
		return metric(t, r.agent, v1alpha1.MetricRejected, "errno", "EINVAL")
	}
	within(t, "a refused write", func() bool { return refused() > 0 }, func() string { return "none" })
	r.pass(t, 50)
	if got := refused(); got != 1 {
		t.Errorf("the kernel refused %v writes, want 1", got)
	}
	n.set(n.layout.Class(model.Burstable), model.Quota, model.Unlimited)
	pod.LimitMilli = 2000
	source.set(pod)
	n.expect(a, model.Quota, 200_000)
}

// audits returns how often the agent has compared its plan with the kernel.
func (r *run) audits(t *testing.T) float64 {
	t.Helper()
	return metric(t, r.agent, v1alpha1.MetricAudits, "", "")
}

// pass waits until the agent has made more audits.
func (r *run) pass(t *testing.T, audits float64) {
	t.Helper()
	until := r.audits(t) + audits
	within(t, "audits", func() bool { return r.audits(t) >= until },
		func() string { return fmt.Sprintf("%v, want %v", r.audits(t), until) })
}

// rests waits until a counter stays the same during so many audits. It never does if the agent repeats a write.
func (r *run) rests(t *testing.T, what string, audits float64, count func() float64) {
	t.Helper()
	last, since := count(), r.audits(t)
	within(t, "no "+what, func() bool {
		now := r.audits(t)
		if is := count(); is != last {
			last, since = is, now
		}
		return now >= since+audits
	}, func() string { return fmt.Sprintf("%v, the last one after audit %v", last, since) })
}

// metric returns the value of one of the agent's metrics: of the series with this label, or of the only series if the
// label is "". An agent whose loop waits for seconds publishes none.
func metric(t testing.TB, a *agent.Agent, name, label, value string) float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(a.Collector())
	families, err := registry.Gather()
	within(t, "metrics", func() bool {
		if err != nil {
			families, err = registry.Gather()
		}
		return err == nil
	}, func() string { return err.Error() })
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if label == "" && f.GetName() == name {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
			for _, l := range m.GetLabel() {
				if f.GetName() == name && l.GetName() == label && l.GetValue() == value {
					return m.GetCounter().GetValue() + m.GetGauge().GetValue()
				}
			}
		}
	}
	return 0
}

// TestNoHotLoop checks that an agent that finds no pods rests between two reads.
func TestNoHotLoop(t *testing.T) {
	looks := noPods(t)
	t.Logf("the agent read its groups %d times", looks)
	if looks > 50 { // a loop without a rest reads thousands of times
		t.Errorf("the agent read its groups %d times within about a second", looks)
	}
}

// noPods lets an agent rest for a second that finds no pods, and returns how often it read its groups.
func noPods(t *testing.T) (looks int) {
	t.Helper()
	n := newNode(t)
	r := n.start(newPods(), func(c *agent.Config) {
		policies := c.Policies
		c.Kubepods = "no-such-layout"
		c.Policies = func() ([]model.ClusterPolicy, error) { looks++; return policies() }
	})
	ready := func() string { return fmt.Sprint(r.agent.Ready()) }
	within(t, "the agent reports the error", func() bool { return strings.Contains(ready(), "--kubepods") }, ready)
	time.Sleep(time.Second)
	r.stop()
	return looks
}

// TestTwoAgents checks that a second agent refuses to use the run directory of the first.
func TestTwoAgents(t *testing.T) {
	n := newNode(t)
	r := n.start(newPods(), nil)
	within(t, "ready", func() bool { return r.agent.Ready() == nil }, func() string { return r.agent.Ready().Error() })
	second := agent.New(agent.Config{CgroupRoot: "/sys/fs/cgroup", RunDir: r.dir, Log: slog.New(slog.DiscardHandler)})
	if err := second.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "another agent") {
		t.Errorf("the second agent: %v", err)
	}
}

// TestRestore checks that files are restored without a running agent: from the specs of known pods, and from the undo
// record for others.
func TestRestore(t *testing.T) {
	for _, known := range []bool{true, false} {
		n := newNode(t)
		source := newPods()
		a := n.pod(model.Burstable, "a", 500)
		n.set(a, model.Shares, 300) // not the kubelet's value, but the value on record
		source.set(burstable("a", 500, 2048))
		r := n.start(source, nil)
		n.expect(a, model.Shares, 2048)
		r.stop()
		cfg := restore.Config{CgroupRoot: "/sys/fs/cgroup", RunDir: r.dir}
		want := int64(300)
		if known {
			cfg.Pods, want = source, 512
		}
		restored, err := restore.Restore(t.Context(), cfg)
		if err != nil || len(restored) != 2 {
			t.Errorf("known %v: %+v, %v", known, restored, err)
		}
		if !n.holds(a, model.Shares, want) {
			t.Errorf("known %v: the weight is %d, want %d shares", known, n.raw(a, model.Shares), want)
		}
		if again, err := restore.Restore(t.Context(), cfg); err != nil || len(again) != 0 {
			t.Errorf("known %v: restoring twice: %+v, %v", known, again, err)
		}
	}
}

// TestDamagedRecord checks that the agent runs with a damaged undo record, and keeps the damaged file.
func TestDamagedRecord(t *testing.T) {
	n := newNode(t)
	source := newPods()
	a := n.pod(model.Burstable, "a", 500)
	source.set(burstable("a", 500, 2048))
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, kernel.UndoFile), []byte("waterline-undo 1 crc32 0\n{}"),
		0o600); err != nil {
		t.Fatal(err)
	}
	n.start(source, func(c *agent.Config) { c.RunDir = dir })
	n.expect(a, model.Shares, 2048)
	if _, err := os.Stat(filepath.Join(dir, kernel.UndoFile+".damaged")); err != nil {
		t.Error(err)
	}
}

// TestNoAllocations checks that a round that finds no change allocates no memory.
func TestNoAllocations(t *testing.T) {
	n := newNode(t)
	undo, err := acthost.OpenUndo(filepath.Join(t.TempDir(), "undo"))
	if err != nil {
		t.Fatal(err)
	}
	h, err := acthost.New(n.mount.Version, n.mount.OfKnob, undo)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	w, err := host.NewWatcher(n.mount.Version)
	if err != nil {
		t.Fatal(err)
	}
	tree := host.NewTree(n.mount, n.layout, w)
	defer tree.Close()
	var plan model.Plan
	for _, uid := range []string{"a", "b", "c", "d"} {
		dir := n.pod(model.Burstable, uid, 100, "0123456789ab")
		plan.Settings = append(plan.Settings,
			model.Setting{File: model.File{Dir: dir, Knob: model.Shares}, Value: model.Number(2048)},
			model.Setting{File: model.File{Dir: dir + "/0123456789ab", Knob: model.Shares}, Value: model.Number(1024)})
		if n.mount.Cpusets != "" {
			plan.Settings = append(plan.Settings, model.Setting{File: model.File{Dir: dir + "/0123456789ab", Knob: model.Cpuset},
				Value: model.Value{List: "0"}})
		}
	}
	if _, err := h.Apply(&plan); err != nil {
		t.Fatal(err)
	}
	all := func(string) bool { return true }
	if changed, err := tree.Scan(all); !changed || err != nil {
		t.Fatalf("the first scan returned %v, %v", changed, err)
	}
	allocs := testing.AllocsPerRun(100, func() {
		if changed, err := tree.Scan(all); changed || err != nil {
			t.Fatalf("nothing changed, but the scan returned %v, %v", changed, err)
		}
		tree.WatchSettings(plan.Settings)
		if h.CheckAll() {
			t.Fatal("nothing changed, but a file differs")
		}
	})
	if allocs > 0 {
		t.Errorf("an audit without changes makes %v allocations, want none", allocs)
	}
}

// TestReservedMemory checks that memory which the Node keeps from pods counts as reserved, also where the kubelet's
// settings cannot be read: then capacity minus allocatable is all that shows it.
func TestReservedMemory(t *testing.T) {
	n := newNode(t)
	source := newPods()
	source.change(func(s *model.Snapshot) {
		s.Capacity, s.Allocatable = model.Amount{CPU: 64_000, Memory: 64 << 30}, model.Amount{CPU: 60_000, Memory: 60 << 30}
	})
	r := n.start(source, func(c *agent.Config) { c.Kubelet = nil })
	var cpu, memory int64
	within(t, "at least 4 CPUs and 4 GiB are reserved", func() bool {
		err := r.agent.View(t.Context(), func(v *agent.View) {
			if s := v.Plan.Slack; s != nil {
				cpu, memory = s.CPU.Reserved, s.Memory.Reserved
			}
		})
		return err == nil && cpu >= 4000 && memory >= 4<<30
	}, func() string { return fmt.Sprintf("%d milli-cores, %d bytes", cpu, memory) })
}
