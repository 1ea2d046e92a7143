package kernel_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/agent"
	"github.com/waterline-io/waterline/internal/journal"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/host"
	"github.com/waterline-io/waterline/test/fixture"
)

// busyMachine is a procfs of a machine with four CPUs. The test sets how busy it is, independent of this machine.
type busyMachine struct {
	dir  string
	busy atomic.Int64 // CPUs
}

func newMachine(t *testing.T) *busyMachine {
	t.Helper()
	m := &busyMachine{dir: t.TempDir()}
	for _, file := range []string{"meminfo", "zoneinfo"} {
		content, err := os.ReadFile(filepath.Join(host.DefaultProc, file))
		if err == nil {
			err = os.WriteFile(filepath.Join(m.dir, file), content, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	stat, err := os.Create(filepath.Join(m.dir, "stat"))
	if err != nil {
		t.Fatal(err)
	}
	stop, done := make(chan struct{}), make(chan struct{})
	idle, last := time.Duration(0), time.Now()
	write := func() {
		now := time.Now()
		idle, last = idle+now.Sub(last)*time.Duration(4-m.busy.Load()), now
		text := fmt.Sprintf("cpu  1 2 3 %012d 0 0 0 0 0 0\n%sprocs_running 1\n", idle/(10*time.Millisecond),
			"cpu0 1 2 3 4 0 0 0 0 0 0\ncpu1 1 2 3 4 0 0 0 0 0 0\ncpu2 1 2 3 4 0 0 0 0 0 0\ncpu3 1 2 3 4 0 0 0 0 0 0\n")
		if _, err := stat.WriteAt([]byte(text), 0); err != nil { // always of the same length
			t.Error(err)
		}
	}
	write()
	go func() {
		defer close(done)
		for tick := time.NewTicker(20 * time.Millisecond); ; write() {
			select {
			case <-stop:
				tick.Stop()
				return
			case <-tick.C:
			}
		}
	}()
	t.Cleanup(func() { close(stop); <-done; _ = stat.Close() })
	return m
}

// limited is a Burstable pod of class LS with containers that have these CPU limits, in milli-cores.
func limited(uid string, limits map[string]int64) model.Pod {
	pod := burstable(uid, 100, 0)
	pod.Class = model.ClassLS
	for id, limit := range limits {
		pod.Containers = append(pod.Containers, model.Container{Name: id, ID: id, LimitMilli: limit, LeastMilli: limit})
		pod.LimitMilli, pod.LeastMilli = pod.LimitMilli+limit, pod.LeastMilli+limit
	}
	return pod
}

// TestBurst walks a pod through its life under a policy that allows bursts. The test acts as the kubelet.
func TestBurst(t *testing.T) {
	n := newMeterNode(t)
	const c0, c1 = "0123456789aa", "0123456789bb"
	a := n.pod(model.Burstable, "a", 100, c0, c1)
	n.count(a)
	if n.raw(a, model.Burst) == -2 {
		t.Skip("kernel before 5.14: no bursts")
	}
	kubelet := func(pod, first, second int64) error { // loosens and tightens in the order that cgroup v1 requires
		write := func(dir string, quota int64) error { return n.try(dir, model.Quota, quota) }
		if n.raw(a, model.Quota) == model.Unlimited || pod > n.raw(a, model.Quota) {
			return errors.Join(write(a, pod), write(a+"/"+c0, first), write(a+"/"+c1, second))
		}
		if err := write(a+"/"+c0, first); err != nil {
			return err // like the kubelet, which continues only after a successful write
		}
		return errors.Join(write(a+"/"+c1, second), write(a, pod))
	}
	bursts := func(pod, first, second int64) {
		t.Helper()
		n.expect(a, model.Burst, pod)
		n.expect(a+"/"+c0, model.Burst, first)
		n.expect(a+"/"+c1, model.Burst, second)
	}
	if err := kubelet(150_000, 100_000, 50_000); err != nil {
		t.Fatal(err)
	}
	source, machine := newPods(), newMachine(t)
	source.set(limited("a", map[string]int64{c0: 1000, c1: 500}))
	policy := fixture.Policy()
	policy.Protect.Burst, policy.CPU.Waterline = true, 1000
	var rules atomic.Pointer[model.Policy]
	rules.Store(&policy)
	r := n.start(source, func(c *agent.Config) {
		c.Proc, c.SyncPeriod = machine.dir, 100*time.Millisecond
		c.Policies = func() ([]model.ClusterPolicy, error) {
			return []model.ClusterPolicy{{Rollout: model.DefaultRollout, Policy: *rules.Load()}}, nil
		}
	})

	t.Log("the node must have room for ten seconds")
	cools := func(pod int64) {
		t.Helper()
		// Whenever the machine seems busy, the ten seconds start again.
		waitFor(t, patience, "the pod may burst", func() bool { return n.raw(a, model.Burst) == pod },
			func() string { return strconv.FormatInt(n.raw(a, model.Burst), 10) })
	}
	cools(150_000)
	bursts(150_000, 100_000, 50_000)

	t.Log("the agent repairs another writer's value")
	n.set(a+"/"+c0, model.Burst, 0)
	bursts(150_000, 100_000, 50_000)

	t.Log("a resize to less: the burst is gone long before the status shows the resize")
	less := limited("a", map[string]int64{c0: 1000, c1: 500})
	for i := range less.Containers {
		if less.Containers[i].ID == c0 {
			less.Containers[i].LeastMilli = 400 // the limit in the spec; the one in the status is 1000
		}
	}
	less.LeastMilli = 900
	source.set(less)
	bursts(90_000, 40_000, 50_000)
	if err := kubelet(90_000, 40_000, 50_000); err != nil {
		t.Errorf("the kubelet's resize: %v", err)
	}
	source.set(limited("a", map[string]int64{c0: 400, c1: 500}))
	bursts(90_000, 40_000, 50_000)

	t.Log("the kernel refuses a kubelet that is faster than the agent, and it tries again")
	if err := kubelet(60_000, 20_000, 40_000); !errors.Is(err, unix.EINVAL) {
		t.Errorf("%v, want EINVAL", err)
	}
	source.set(limited("a", map[string]int64{c0: 200, c1: 400}))
	within(t, "the kubelet's second attempt", func() bool { return kubelet(60_000, 20_000, 40_000) == nil },
		func() string { return "EINVAL" })
	bursts(60_000, 20_000, 40_000)

	t.Log("a resize to more: the burst follows the quota")
	more := limited("a", map[string]int64{c0: 1000, c1: 400})
	for i := range more.Containers {
		if more.Containers[i].ID == c0 {
			more.Containers[i].LeastMilli = 200 // the limit in the status
		}
	}
	more.LeastMilli = 600
	source.set(more)
	if err := kubelet(140_000, 100_000, 40_000); err != nil {
		t.Fatal(err)
	}
	source.set(limited("a", map[string]int64{c0: 1000, c1: 400}))
	bursts(140_000, 100_000, 40_000)

	t.Log("the node is hot")
	machine.busy.Store(4)
	bursts(0, 0, 0)
	machine.busy.Store(0)
	cools(140_000)
	bursts(140_000, 100_000, 40_000)

	t.Log("the policy changes twice")
	off := policy
	off.Protect.Burst = false
	rules.Store(&off)
	bursts(0, 0, 0)
	if got := metric(t, r.agent, v1alpha1.MetricRejected, "errno", "EINVAL"); got != 0 {
		t.Errorf("the kernel refused %v writes of the agent", got)
	}

	t.Log("by the agent's own clock, there was room for ten seconds each time before the pod could burst")
	r.stop()
	checkRoom(t, r.dir, a)
}

// checkRoom checks in an agent's journal that a pod could not burst earlier than ten seconds after the agent's first
// round, or after the round in which it lost its burst.
func checkRoom(t *testing.T, runDir, dir string) {
	t.Helper()
	var hot time.Time
	times, allowed := 0, false
	for round, err := range journal.Read(runDir) {
		if err != nil {
			t.Fatal(err)
		}
		before := allowed
		for _, s := range round.Plan.Settings {
			if s.Dir == dir && s.Knob == model.Burst {
				allowed = s.Value.Number > 0
			}
		}
		switch {
		case hot.IsZero() || before && !allowed:
			hot = round.Node.Now
		case allowed && !before:
			times++
			if room := round.Node.Now.Sub(hot); room < 9*time.Second {
				t.Errorf("the pod may burst %s after the node was hot", room)
			}
		}
	}
	if times < 2 {
		t.Errorf("the journal has the permission to burst %d times, want 2", times)
	}
}

// TestBurstRaises runs a container that uses its whole quota, beside one that sleeps.
func TestBurstRaises(t *testing.T) {
	n := newMeterNode(t)
	const c0, c1 = "0123456789aa", "0123456789bb"
	n.outweigh() // a container that other processes keep from its quota is not throttled
	a := n.add("a")
	n.set(a, model.Quota, 50_000)
	n.set(a+"/"+c0, model.Quota, 30_000)
	n.set(a+"/"+c1, model.Quota, 20_000)
	source, machine := newPods(), newMachine(t)
	source.set(limited("a", map[string]int64{c0: 300, c1: 200}))
	policy := fixture.Policy()
	policy.Protect.Burst, policy.CPU.Waterline = true, 1000
	r := n.start(source, func(c *agent.Config) {
		c.Proc = machine.dir
		c.Policies = func() ([]model.ClusterPolicy, error) {
			return []model.ClusterPolicy{{Rollout: model.DefaultRollout, Policy: policy}}, nil
		}
	})
	n.burn(a) // in its first container
	waitFor(t, patience, "the quota is raised", func() bool { return n.raw(a+"/"+c0, model.Quota) >= 40_000 },
		func() string { return fmt.Sprint(n.raw(a+"/"+c0, model.Quota), n.text(a+"/"+c0, "cpu.stat")) })
	within(t, "the pod's quota is the sum", func() bool {
		return n.raw(a, model.Quota) == n.raw(a+"/"+c0, model.Quota)+n.raw(a+"/"+c1, model.Quota)
	}, func() string { return fmt.Sprint(n.raw(a, model.Quota)) })
	if got := n.raw(a+"/"+c1, model.Quota); got != 20_000 {
		t.Errorf("the quota of the sleeping container is %d", got)
	}
	if got := n.raw(a+"/"+c0, model.Burst); got != 30_000 && got != -2 {
		t.Errorf("its burst is %d", got)
	}

	t.Log("the node is hot: the quota is restored at once")
	machine.busy.Store(4)
	n.expect(a+"/"+c0, model.Quota, 30_000)
	n.expect(a, model.Quota, 50_000)
	if got := metric(t, r.agent, v1alpha1.MetricRejected, "errno", "EINVAL"); got != 0 {
		t.Errorf("the kernel refused %v writes of the agent", got)
	}
}
