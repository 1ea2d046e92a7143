package kernel_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/agent"
	"github.com/waterline-io/waterline/internal/model"
)

const (
	freezing = `{apiVersion: waterline.io/v1alpha1, kind: ColocationPolicy, metadata: {name: p},
spec: {mode: Enforce, weight: {max: 262144}, memory: {method: Realtime, waterline: 1%},
protect: {memory: true, eviction: {freeze: true}}}}`
	manifestOf = "{apiVersion: v1, kind: Pod, metadata: {name: %[1]s, namespace: default, uid: %[1]s, " +
		"labels: {waterline.io/qos: %[2]s}}, spec: {containers: [{name: c}]}}"
)

// freezeNode is a node with an online pod, and a batch pod that allocates more and more memory.
type freezeNode struct {
	*testNode
	web, hog     string
	online, grow *holder
}

func newFreezeNode(t *testing.T) *freezeNode {
	n := &freezeNode{testNode: newMemoryNode(t)}
	n.web, n.hog = n.pod(model.Burstable, "a", 100, "0123456789aa"), n.pod(model.BestEffort, "b", 0, "0123456789bb")
	n.online, n.grow = n.hold(n.web+"/0123456789aa"), n.hold(n.hog+"/0123456789bb")
	n.online.do("anon")
	n.grow.do("grow 256")
	return n
}

// agent runs an agent in this process, under a policy that leaves no memory for batch. If known is false, the agent has
// no list of pods yet.
func (n *freezeNode) agent(runDir string, known bool) (*run, *pods) {
	source := newPods()
	source.now.Known = known
	source.set(web("a", model.ClassLS, 64*mib))
	source.set(batch("b", model.Grant{RequestMilli: 1000}, "0123456789bb"))
	r := n.start(source, func(c *agent.Config) { c.SyncPeriod, c.RunDir = 100*time.Millisecond, runDir })
	r.mu.Lock()
	r.policy.Memory.Waterline = 10
	r.policy.Protect = model.ProtectPolicy{Memory: true, EvictPerHour: 6, Freeze: true}
	r.mu.Unlock()
	return r, source
}

// frozen waits until the batch pod stands still, and checks that no other pod does.
func (n *freezeNode) frozen() {
	t := n.t.(*testing.T)
	t.Helper()
	n.expect(n.hog, model.Freeze, 1)
	within(t, "its tasks stand still", func() bool { return strings.Contains(n.text(n.hog, "cgroup.events"), "frozen 1") },
		func() string { return n.text(n.hog, "cgroup.events") })
	if n.raw(n.hog, model.MemoryHigh) == model.Unlimited {
		t.Error("it was frozen before its memory was limited")
	}
	used := func() int { return number(t, n.text(n.hog, "memory.current")) } // memory.stat is up to 2 s old
	before := used()
	time.Sleep(500 * time.Millisecond)
	if after := used(); after > before && n.raw(n.hog, model.Freeze) == 1 {
		t.Errorf("its memory grew by %d KiB", (after-before)>>10)
	}
	for _, dir := range []string{n.web, n.layout.Class(model.BestEffort), n.layout.Root} {
		if n.raw(dir, model.Freeze) != 0 {
			t.Errorf("%s is frozen as well", dir)
		}
	}
	n.online.do("nothing")
	if got := n.anon(n.web); got < 64*mib {
		t.Errorf("the online pod has %d MiB of 64", got/mib)
	}
}

// thawed waits until the batch pod continues.
func (n *freezeNode) thawed() {
	n.t.Helper()
	n.expect(n.hog, model.Freeze, 0)
	within(n.t, "its tasks run again", func() bool { return strings.Contains(n.text(n.hog, "cgroup.events"), "frozen 0") },
		func() string { return n.text(n.hog, "cgroup.events") })
}

// TestFreeze lets the agent freeze a batch pod that allocates memory while none is left for batch. The pod is thawed
// when it is deleted and must run to terminate, when the agent stops, and, after a kill of the agent, by the next
// agent.
func TestFreeze(t *testing.T) {
	t.Run("leaving", func(t *testing.T) {
		t.Parallel()
		n := newFreezeNode(t)
		_, source := n.agent(memoryDir(t), true)
		n.frozen()
		leaving := batch("b", model.Grant{RequestMilli: 1000}, "0123456789bb")
		leaving.Leaving, leaving.Grace = true, 30*time.Second
		source.set(leaving)
		n.thawed()
	})
	t.Run("stopped", func(t *testing.T) {
		longForm(t, "after a kill, the thaw is harder: the next agent has no list of pods yet")
		t.Parallel()
		n := newFreezeNode(t)
		r, _ := n.agent(memoryDir(t), true)
		n.frozen()
		r.stop()
		if n.raw(n.hog, model.Freeze) != 0 {
			t.Error("the agent stopped and left the pod frozen")
		}
		n.thawed()
		if got := n.raw(n.hog, model.MemoryHigh); got != model.Unlimited {
			t.Errorf("the agent stopped and left memory.high at %d", got)
		}
	})
	t.Run("killed", func(t *testing.T) {
		t.Parallel()
		n := newFreezeNode(t)
		manifests, runDir, policy := t.TempDir(), memoryDir(t), filepath.Join(t.TempDir(), "policy")
		for file, text := range map[string]string{policy: freezing, filepath.Join(manifests, "a.yaml"): pod("a", "LS"),
			filepath.Join(manifests, "b.yaml"): pod("b", "BE")} {
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		p := n.launch(manifests, runDir, "--config", policy)
		t.Cleanup(func() { p.kill() })
		n.frozen()
		p.kill()
		if n.raw(n.hog, model.Freeze) != 1 {
			t.Error("it was thawed without an agent")
		}
		began := time.Now()
		r, source := n.agent(runDir, false)
		n.thawed()
		t.Logf("the next agent, without a list of pods, thaws the pod after %s", time.Since(began))
		source.change(func(s *model.Snapshot) { s.Known = true })
		within(t, "the agent is ready", func() bool { return r.agent.Ready() == nil },
			func() string { return r.agent.Ready().Error() })
		for range 140 {
			time.Sleep(50 * time.Millisecond)
			if n.raw(n.hog, model.Freeze) != 0 {
				t.Fatal("the pod is frozen again")
			}
		}
	})
}

func pod(name, class string) string {
	return strings.NewReplacer("%[1]s", name, "%[2]s", class).Replace(manifestOf)
}

// TestFrozen records how the kernel treats a frozen group. Groups below are frozen too, though their own files do not
// show it. A process that gets SIGTERM ends after the thaw; one that gets SIGKILL ends at once.
func TestFrozen(t *testing.T) {
	n := newFreezeNode(t)
	inside := n.hog + "/0123456789bb"
	processes := func() []string { return strings.Fields(n.text(inside, "cgroup.procs")) }
	signal := func(s syscall.Signal) {
		t.Helper()
		for _, text := range processes() {
			pid, err := strconv.Atoi(text)
			if err == nil {
				err = syscall.Kill(pid, s)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	frozen := func() bool { return strings.Contains(n.text(inside, "cgroup.events"), "frozen 1") }
	n.set(n.hog, model.Freeze, 1)
	within(t, "the groups below stand still", frozen, func() string { return n.text(inside, "cgroup.events") })
	if n.raw(inside, model.Freeze) != 0 {
		t.Error("the container's own file shows the freeze: the runtime would consider it paused")
	}
	n.set(inside, model.Freeze, 0) // like a runtime that resumes the container, or that has ended a process in it
	time.Sleep(100 * time.Millisecond)
	if !frozen() {
		t.Error("the container's own file thawed it")
	}
	signal(syscall.SIGTERM)
	if n.grow.ended() {
		t.Error("the process ended while it was frozen")
	}
	n.set(n.hog, model.Freeze, 0)
	within(t, "the process ends", n.grow.ended, func() string { return "the process runs" })
	n.grow = n.hold(inside)
	n.grow.do("nothing") // the process is inside
	n.set(n.hog, model.Freeze, 1)
	within(t, "the process stands still", frozen, func() string { return n.text(inside, "cgroup.events") })
	signal(syscall.SIGKILL)
	within(t, "the process is killed", n.grow.ended, func() string { return "the process stands still" })
	n.set(n.hog, model.Freeze, 0)
}
