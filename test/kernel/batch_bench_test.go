//go:build bench

package kernel_test

import (
	"slices"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/agent"
	"github.com/waterline-io/waterline/internal/model"
)

// TestBatchDelay measures how long it takes from before a pod's cgroup is made until the pod has its settings. A
// runtime needs longer than that to start the pod's first process.
func TestBatchDelay(t *testing.T) {
	n := newBatchNode(t)
	source := newPods()
	each := model.Grant{RequestMilli: 1500, LimitMilli: 2000, Memory: 100_000_001} // not whole pages
	r := n.start(source, func(c *agent.Config) { c.SyncPeriod = 100 * time.Millisecond })
	within(t, "ready", func() bool { return r.agent.Ready() == nil }, func() string { return r.agent.Ready().Error() })
	const count = 30
	took := n.newcomers(source, count, each, model.Grant{LimitMilli: 4000, Memory: 2 * each.Memory})
	slices.Sort(took)
	t.Logf("until a pod has weight, quota and limit: %s in the median, %s at most", took[count/2], took[count-1])
	if took[count/2] > 200*time.Millisecond && !emulated() {
		t.Errorf("that takes %s", took[count/2])
	}
}
