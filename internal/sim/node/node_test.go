package node

import (
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// TestNode lets online pods of a node with 10 CPUs use 2, then 7, and then 2 again. Batch is limited to what they leave
// under a waterline of 80 %: at once when they use more, slowly when they use less. The offer grows after a while, and
// what the API shows follows it.
func TestNode(t *testing.T) {
	size := model.Amount{CPU: 10_000, Memory: 32 << 30}
	n := New(size, size)
	job := &model.Pod{UID: "job", APIUID: "job", QoS: model.BestEffort, Class: model.ClassBE, Tier: model.TierBatch}
	n.View.Pods = []*model.Pod{job}
	n.View.Tree.Pods["job"] = model.PodGroup{Dir: n.View.Tree.BestEffort + "/podjob"}
	n.Load.Pods = []model.PodUsage{{UID: "job"}}
	p := model.DefaultPolicy()
	p.Mode, p.CPU.Waterline, p.CPU.Method = model.ModeEnforce, 800, model.SellRealtime
	p.Suppress.By = model.SuppressByArithmetic
	now := time.Duration(0)
	pass := func(seconds int, online int64) (batch int64) {
		for range seconds {
			now += time.Second
			batch = n.Left(0, online)
			n.At(now)
			used := model.Amount{CPU: batch}
			n.Load.Pods[0].Usage = n.Usage(used)
			n.Measure(Use{Online: model.Amount{CPU: online}, Batch: used})
			n.Decide(&p)
		}
		return batch
	}
	for i, step := range []struct {
		seconds           int
		online, low, most int64 // what online pods use, and batch then
	}{{60, 2000, 5900, 6000}, {2, 7000, 900, 1000}, {3, 2000, 900, 1000}, {60, 2000, 5700, 6000}} {
		if batch := pass(step.seconds, step.online); batch < step.low || batch > step.most {
			t.Errorf("step %d: batch uses %d mCPU after %s", i, batch, now)
		}
	}
	pass(3600, 2000)
	if shown := n.Shown(); n.Offer.CPU < 5000 || n.Offer.CPU > 6000 || !shown.Selling || shown.Offer.CPU != n.Offer.CPU {
		t.Errorf("after an hour the Node offers %d mCPU, and the manager sees %+v", n.Offer.CPU, shown)
	}
}
