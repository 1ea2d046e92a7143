package kernel_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/agent"
	"github.com/waterline-io/waterline/internal/agent/faillog"
	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// noRuntime is a container runtime that reports nothing by itself.
type noRuntime struct{}

func (noRuntime) Run(ctx context.Context) { <-ctx.Done() }

// has checks at once that a group has the limits of a grant.
func (n *testNode) has(dir string, g model.Grant) {
	n.t.Helper()
	want := map[model.Knob]int64{model.Quota: model.Unlimited, model.MemoryMax: model.Unlimited}
	if g.LimitMilli != 0 {
		want[model.Quota] = model.MilliCPUToQuota(g.LimitMilli, model.DefaultQuotaPeriod)
	}
	if g.Memory != 0 {
		want[model.MemoryMax] = g.Memory
	}
	for knob, value := range want {
		if !n.holds(dir, knob, value) {
			n.t.Errorf("%s %s is %d, want %d", dir, knob, n.raw(dir, knob), value)
		}
	}
}

// TestFirstInstruction checks that the limits of a batch pod and its containers are in the kernel when the container
// runtime has the agent's answer, at which it runs the container's first instruction: for new containers, for
// containers that start again, for pods that the agent knows later than the runtime.
func TestFirstInstruction(t *testing.T) {
	n := newBatchNode(t)
	source := newPods()
	connected := make(chan agent.Answers, 1)
	r := n.start(source, func(c *agent.Config) {
		c.Runtime = func(a agent.Answers, _ *faillog.Log) agent.Runtime {
			connected <- a
			return noRuntime{}
		}
	})
	runtime := <-connected
	within(t, "ready", func() bool { return r.agent.Ready() == nil }, func() string { return r.agent.Ready().Error() })
	rounds := func() float64 { return metric(t, r.agent, v1alpha1.MetricRounds, "", "") }
	each := model.Grant{RequestMilli: 100, LimitMilli: 200, Memory: 64 * mib}
	twice := model.Grant{LimitMilli: 400, Memory: 128 * mib}
	started := func(uid, name, id string) model.RuntimeContainer {
		n.group(n.layout.Pod(model.BestEffort, uid) + "/" + id)
		return model.RuntimeContainer{PodUID: uid, Name: name, ID: id}
	}

	t.Log("containers of a pod that is known start one after the other")
	source.set(batch("a", each, "", ""))
	a := n.pod(model.BestEffort, "a", 0)
	for i, id := range []string{"0123456789aa", "0123456789bb"} {
		runtime.Start(t.Context(), started("a", fmt.Sprintf("c%d", i), id))
		n.has(a, twice)
		n.has(a+"/"+id, each)
	}

	t.Log("one of them starts again, while the API shows its last instance")
	source.set(batch("a", each, "0123456789aa", "0123456789bb"))
	n.remove(a + "/0123456789aa")
	runtime.Start(t.Context(), started("a", "c0", "0123456789ab"))
	n.has(a+"/0123456789ab", each)
	n.has(a+"/0123456789bb", each)
	source.set(batch("a", each, "0123456789ab", "0123456789bb"))
	before := rounds()
	within(t, "a round with what the API shows", func() bool { return rounds() > before }, func() string { return "none" })
	n.has(a+"/0123456789ab", each)

	t.Log("a container without limits, beside one with limits")
	b := batch("b", each, "", "")
	b.Grant = model.Grant{RequestMilli: 100}
	b.Containers[1].Grant = model.Grant{}
	source.set(b)
	dir := n.pod(model.BestEffort, "b", 0)
	runtime.Start(t.Context(), started("b", "c0", "0123456789ac"))
	runtime.Start(t.Context(), started("b", "c1", "0123456789ad"))
	n.has(dir, model.Grant{})
	n.has(dir+"/0123456789ac", each)
	n.has(dir+"/0123456789ad", model.Grant{})

	t.Log("a pod that the API never shows is awaited once")
	n.pod(model.BestEffort, "lost", 0)
	ctx, cancel := context.WithCancel(t.Context())
	before = rounds()
	answered := make(chan struct{})
	go func() { runtime.Start(ctx, started("lost", "c0", "0123456789ae")); close(answered) }()
	within(t, "a round that does not know the pod", func() bool { return rounds() > before },
		func() string { return "none" })
	select {
	case <-answered:
		t.Error("its container was not held back")
	default:
	}
	cancel()
	<-answered
	runtime.Start(t.Context(), started("lost", "c1", "0123456789af")) // without an end of its context
	runtime.Start(t.Context(), model.RuntimeContainer{PodUID: "file", Name: "c0", ID: "0123456789ba", Static: true})

	t.Log("a pod that the API shows after its container was made")
	source.set(batch("other", each))
	n.expect(n.pod(model.BestEffort, "other", 0), model.MemoryMax, each.Memory) // the agent knows what the API shows now
	c := n.pod(model.BestEffort, "c", 0)
	before = rounds()
	answered = make(chan struct{})
	go func() { runtime.Start(t.Context(), started("c", "c0", "0123456789bc")); close(answered) }()
	within(t, "a round that does not know the pod", func() bool { return rounds() > before },
		func() string { return "none" })
	select {
	case <-answered:
		t.Error("its container was not held back")
	default:
	}
	source.set(batch("c", each, ""))
	<-answered
	n.has(c, each)
	n.has(c+"/0123456789bc", each)

	t.Log("a container that started without the agent is limited when the runtime reports it")
	d := n.pod(model.BestEffort, "d", 0)
	runs := started("d", "c0", "0123456789bd")
	source.set(batch("d", each, ""))
	n.expect(d, model.MemoryMax, each.Memory)
	n.has(d+"/0123456789bd", model.Grant{})
	runtime.Runs(runs)
	n.expect(d+"/0123456789bd", model.MemoryMax, each.Memory)
	n.expect(d+"/0123456789bd", model.Quota, model.MilliCPUToQuota(each.LimitMilli, model.DefaultQuotaPeriod))

	t.Log("the runtime writes its own values over the limits, as for an update")
	n.set(d+"/0123456789bd", model.Quota, model.Unlimited)
	n.set(d+"/0123456789bd", model.MemoryMax, model.Unlimited)
	n.expect(d+"/0123456789bd", model.MemoryMax, each.Memory)
	n.expect(d+"/0123456789bd", model.Quota, model.MilliCPUToQuota(each.LimitMilli, model.DefaultQuotaPeriod))
	if n.mount.Version == cgroup.V1 {
		n.expect(d, model.Quota, model.MilliCPUToQuota(each.LimitMilli, model.DefaultQuotaPeriod))
	}
}
