package kernel_test

import (
	"testing"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/agent/restore"
	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// TestIdleBatch makes batch pods idle and takes it back in every possible way. The kernel must refuse no write, and the
// agent must not mistake an idle group's weight for another writer's value.
func TestIdleBatch(t *testing.T) {
	n := newNode(t)
	source := newPods()
	weighs := map[string]int64{"a": 2048, "b": 3} // on v1, any idle group reads 3
	for uid, shares := range weighs {
		n.pod(model.BestEffort, uid, 0)
		source.set(batch(uid, model.Grant{RequestMilli: (shares*1000 + model.SharesPerCPU - 1) / model.SharesPerCPU}))
	}
	a, b := n.layout.Pod(model.BestEffort, "a"), n.layout.Pod(model.BestEffort, "b")
	if n.raw(a, model.Idle) == -2 {
		t.Skip("kernel before 5.15: no cpu.idle")
	}
	r := n.start(source, nil)
	policy := func(idle bool) {
		r.set(func(p *model.Policy) {
			if p.Weight.Batch = model.BatchByWeight; idle {
				p.Weight.Batch = model.BatchByIdle
			}
		})
	}
	both := func(idle int64) {
		t.Helper()
		for uid, shares := range weighs {
			dir := n.layout.Pod(model.BestEffort, uid)
			n.expect(dir, model.Idle, idle)
			if idle == 0 {
				n.expect(dir, model.Shares, shares)
			}
		}
	}
	both(0)
	policy(true)
	both(1)

	if err := n.tryText(a, cgroup.FileName(n.mount.Version, model.Idle), "0"); err != nil {
		t.Fatal(err)
	}
	within(t, "the agent repairs it", func() bool {
		return metric(t, r.agent, v1alpha1.MetricRepairs, "file",
			model.Idle.String()) == 1
	}, func() string { return "never" })
	both(1)

	own := batch("a", model.Grant{RequestMilli: 2000})
	own.Annotations.Shares = 512
	source.set(own)
	n.expect(a, model.Shares, 512)
	n.expect(a, model.Idle, 0)
	own.Annotations.Shares = 0
	source.set(own)
	n.expect(a, model.Idle, 1)

	policy(false)
	both(0)
	policy(true)
	both(1)
	for _, knob := range []model.Knob{model.Shares, model.Idle} {
		if refused := metric(t, r.agent, v1alpha1.MetricRejected, "file", knob.String()); refused > 0 {
			t.Errorf("%g writes of %s were refused", refused, knob)
		}
	}
	if answered := metric(t, r.agent, v1alpha1.MetricRepairs, "file", model.Shares.String()); answered > 0 {
		t.Errorf("%g weights of idle groups were mistaken for another writer's", answered)
	}
	r.stop()
	if restored, err := restore.Restore(t.Context(),
		restore.Config{CgroupRoot: "/sys/fs/cgroup", RunDir: r.dir}); err != nil || len(restored) != 4 {
		t.Errorf("restored %+v, %v", restored, err)
	}
	for _, dir := range []string{a, b} {
		if n.raw(dir, model.Idle) != 0 || !n.holds(dir, model.Shares, model.MinShares) {
			t.Errorf("%s: idle %d and a weight of %d", dir, n.raw(dir, model.Idle), n.raw(dir, model.Shares))
		}
	}
}
