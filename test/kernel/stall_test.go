package kernel_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/agent"
	"github.com/waterline-io/waterline/internal/decide/node/evict"
	"github.com/waterline-io/waterline/internal/model"
)

// TestStalled lets a batch container run into its own memory.high, as a kubelet's MemoryQoS sets it, while the machine
// has room. The kernel kills nobody and lets the container have hardly any more memory: by its pressure, the agent sees
// it stall. A pod beside it that only holds its memory does not stall.
func TestStalled(t *testing.T) {
	n := newMemoryNode(t)
	const limit = 96 * mib
	pods := map[string]*holder{}
	source := newPods()
	for uid, id := range map[string]string{"a": "0123456789aa", "b": "0123456789bb"} {
		dir := n.pod(model.BestEffort, uid, 0, id) + "/" + id
		n.set(dir, model.MemoryHigh, limit*9/10)
		pods[uid] = n.hold(dir)
		source.set(batch(uid, model.Grant{RequestMilli: 1000, Memory: limit}, id))
	}
	r := n.start(source, func(c *agent.Config) { c.SyncPeriod = 100 * time.Millisecond })
	pods["a"].do("anon")
	pods["b"].do("grow 256")
	var stalls []evict.Since
	has := func(uid string) bool {
		return slices.ContainsFunc(stalls, func(s evict.Since) bool { return s.UID == uid && s.At > 0 })
	}
	within(t, "the agent sees that it stalls", func() bool {
		err := r.agent.View(t.Context(), func(v *agent.View) { stalls = v.State.Evict.Stalls })
		return err == nil && has("b")
	}, func() string {
		return fmt.Sprintf("%+v, %s", stalls, n.text(n.layout.Pod(model.BestEffort, "b"), "memory.pressure"))
	})
	if has("a") {
		t.Errorf("the pod that only holds its memory stalls too: %+v", stalls)
	}
	if pods["b"].ended() {
		t.Error("it was killed")
	}
}
