package e2e_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/yarn"
	hadoop "github.com/waterline-io/waterline/test/bed/yarn"
)

// TestPoolHarm kills the manager, NodeManagers and the ResourceManager of a pool that works, and resizes it under load.
func TestPoolHarm(t *testing.T) {
	h := newHarm(t)
	for _, test := range []struct {
		name string
		run  func(h *harm)
	}{
		{"Resize", func(h *harm) { h.resize(resizes(), h.offers) }}, {"Manager", (*harm).killManagers},
		{"NodeManager", (*harm).killNodeManager}, {"ResourceManager", (*harm).killInDrain},
	} {
		if !t.Run(test.name, func(t *testing.T) {
			h.t, h.began = t, time.Now()
			test.run(h)
			h.t = h.livePool.t
		}) {
			return
		}
	}
}

// newHarm returns a pool of three nodes that has grown to [full].
func newHarm(t *testing.T) *harm {
	t.Helper()
	y := liveYard(t)
	l := y.live(t, "harm", 3, 10*time.Second, 2*time.Minute)
	h := &harm{livePool: l, control: y.liveManager("--identity=harm")}
	l.create("", ", drain: {grace: 10s, timeout: 2m}, identity: {coolDown: 1s}")
	y.active(t, "harm", 3)
	l.grown(full)
	return h
}

// resizes is how often workers are resized.
func resizes() int {
	if soak {
		return 200
	}
	return 12
}

// full is what a NodeManager of these tests offers at most.
var full = yarn.Resource{MemoryMiB: 4096, VCores: 4}

// harm is a pool of three nodes that grows to [full].
type harm struct {
	*livePool
	control *process // the manager
}

// restored waits until the pool is as wanted.
func (h *harm) restored() {
	h.t.Helper()
	for _, node := range h.nodes {
		h.y.offer(h.t, node, h.name, cpuMemory(6, 6))
	}
	h.y.active(h.t, h.name, int32(len(h.nodes)))
	h.grown(full)
}

// resize changes what nodes offer so many times, while containers run. follow waits until the total of a NodeManager
// follows.
func (h *harm) resize(count int, follow func(i int, want yarn.Resource)) {
	h.endless(hadoop.LabelQueue, hadoop.Label, 2)
	h.containers(3)
	for i := range count {
		n, offer, want := i%len(h.nodes), cpuMemory(6, 6), full
		if i/len(h.nodes)%2 == 0 { // a step less, which takes nothing from what runs
			offer, want = cpuMemory(3, 4), yarn.Resource{MemoryMiB: 3072, VCores: 2}
		}
		h.y.offer(h.t, h.nodes[n], h.name, offer)
		follow(n, want)
	}
	for _, id := range h.running() {
		if _, err := hadoop.Kill(h.t.Context(), h.rm, id); err != nil {
			h.t.Error(err)
		}
	}
	h.idle()
	h.containers(0)
	h.unharmed()
}

// offers waits until a NodeManager has a total.
func (h *harm) offers(i int, want yarn.Resource) {
	h.t.Helper()
	eventually(h.t, fmt.Sprintf("%s offers %v", h.host(i), want), func() (bool, string) {
		is := h.manager(i)
		return is.Total == want, fmt.Sprintf("%+v", is)
	})
}

// running returns the applications that have not ended.
func (h *harm) running() (ids []string) {
	h.t.Helper()
	apps, err := hadoop.Apps(h.t.Context(), h.rm, "NEW", "NEW_SAVING", "SUBMITTED", "ACCEPTED", hadoop.AppRunning)
	if err != nil {
		h.t.Fatal(err)
	}
	for _, app := range apps {
		ids = append(ids, app.ID)
	}
	return ids
}

// killManagers kills the manager with -9 at random moments while containers come and go and slack changes. No container
// ends early, and every worker is as wanted afterwards.
func (h *harm) killManagers() {
	kills := 4
	if soak {
		kills = 200
	}
	ctx, cancel := context.WithCancel(h.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ctx.Err() == nil; i++ {
			if i%2 == 0 {
				h.sleepers(2, 256, rand.N(8*time.Second))
			}
			n := 3 + rand.Int64N(4)
			h.y.offer(h.t, h.nodes[rand.IntN(len(h.nodes))], h.name, cpuMemory(n, n))
			time.Sleep(rand.N(2 * time.Second))
		}
	}()
	for range kills {
		time.Sleep(4*time.Second + rand.N(3*time.Second)) // for 3.5 s it only watches
		h.livePool.y.note(h.yarnPool, "the manager is killed")
		h.control.stop(os.Kill)
		h.control = h.y.liveManager("--identity=harm")
	}
	cancel()
	<-done
	h.idle()
	h.restored()
	h.unharmed()
}

// killNodeManager kills a NodeManager with -9 while a job runs. The job succeeds nevertheless, and the containers that
// died with it are found, which shows that the check of the other tests finds some.
func (h *harm) killNodeManager() {
	j, id := h.job(hadoopBed.Sleep(h.t.Context(), 4, 1, 6*time.Second, "-Dmapreduce.job.queuename="+hadoop.LabelQueue))
	victim := -1
	eventually(h.t, "a map runs", func() (bool, string) {
		victim = slices.IndexFunc(h.nodes, func(node string) bool { return h.runs(node) > 0 })
		return victim >= 0, ""
	})
	h.live.killManager(h.t, h.name+"-"+h.nodes[victim])
	h.finish(j)
	found := h.judged()
	if len(found.early) == 0 || found.inTime > 0 {
		h.t.Errorf("the containers of a killed NodeManager are not found: %+v", found)
	}
	for _, k := range found.early {
		if k.Node != h.name+"-"+h.nodes[victim] {
			h.t.Errorf("a container elsewhere was killed: %+v", k)
		}
	}
	h.t.Logf("%s succeeded; %d containers died with a NodeManager, %d maps were killed", id, len(found.early),
		j.Counter("Killed map tasks"))
	h.restored()
}

// killInDrain deletes the pool while containers run, and kills the ResourceManager with -9 when the drain has begun.
func (h *harm) killInDrain() {
	// More than the floor each, so that no total is nothing yet: a NodeManager without a total is refused by a
	// ResourceManager that starts, and ends its containers.
	h.sleepers(4, 1100, 25*time.Second)
	h.containers(4)
	kubectl(h.t, "delete", "workerpool", h.name, "-n", poolNamespace, "--wait=false")
	eventually(h.t, "containers use more than the floor of their worker", func() (bool, string) {
		n, err := h.rm.Nodes(h.t.Context(), yarn.NodeRunning)
		return err == nil && slices.ContainsFunc(n, func(n yarn.Node) bool { return n.Available.MemoryMiB < 0 }),
			fmt.Sprintf("%+v, %v", n, err)
	})
	h.killRM(1)
	h.end()
	h.idle()
	if j := h.unharmed(); j.started == 0 || j.inTime > 0 {
		h.t.Errorf("of %d containers, %d were killed at a deadline, which is in two minutes", j.started, j.inTime)
	}
}

// TestPoolPairFailover kills the active one of two ResourceManagers while a shrink with a deadline is armed on one node
// and another drains. The pool becomes as wanted again, and nothing is killed early.
func TestPoolPairFailover(t *testing.T) {
	if !*pair {
		t.Skip("there is one ResourceManager; -pair starts two")
	}
	y := liveYard(t)
	l := y.live(t, "pair", 2, 90*time.Second, 2*time.Minute)
	y.liveManager()
	l.create("", ", drain: {grace: 90s, timeout: 2m}, identity: {coolDown: 1s}")
	y.active(t, "pair", 2)
	l.grown(full)
	l.sleepers(4, 1100, 40*time.Second) // on each node at least one, which is more than the floor
	l.containers(4)
	kubectl(t, "cordon", l.nodes[0])
	y.offer(t, l.nodes[1], l.name, cpuMemory(2, 2))
	for i := range l.nodes {
		eventually(t, "it is over its total", func() (bool, string) {
			n := l.manager(i)
			return n.Available.MemoryMiB < 0, fmt.Sprintf("%+v", n)
		})
	}
	first, err := l.rm.Active(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	active := 1
	if first.Address == hadoop.RMURL(2) {
		active = 2
	}
	began := time.Now()
	l.endRM(active)
	// Not started before the other is active: it would take part in the election, and may win it.
	eventually(t, "the standby is active", func() (bool, string) {
		now, err := l.rm.Active(t.Context())
		return err == nil && now.Address != first.Address, fmt.Sprintf("%+v, %v", now, err)
	})
	l.startRM(active)
	y.becomes(t, "pair", "another ResourceManager is active", func(p *v1alpha1.WorkerPool) bool {
		rm := p.Status.ResourceManager
		return rm != nil && rm.Address != first.Address
	})
	t.Logf("the controller follows the other ResourceManager after %.1f s", time.Since(began).Seconds())
	l.idle()
	kubectl(t, "uncordon", l.nodes[0])
	y.offer(t, l.nodes[1], l.name, cpuMemory(6, 6))
	y.active(t, "pair", 2)
	l.grown(full)
	if j := l.unharmed(); j.inTime > 0 {
		t.Errorf("%d containers were killed at a deadline that they did not reach", j.inTime)
	}
	l.end()
}
