package kernel_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/agent"
	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// bandwidth reads a quota and its period.
func (n *testNode) bandwidth(dir string) model.Value {
	n.t.Helper()
	content, err := os.ReadFile(n.file(dir, model.Quota))
	if err != nil {
		n.t.Fatal(err)
	}
	if name := cgroup.PeriodFile(n.mount.Version, model.Quota); name != "" {
		period, err := os.ReadFile(filepath.Join(n.mount.OfKnob(model.Quota), dir, name))
		if err != nil {
			n.t.Fatal(err)
		}
		content = append(content, period...)
	}
	raw, err := cgroup.Parse(n.mount.Version, model.Quota, content, cgroup.Raw{})
	if err != nil {
		n.t.Fatal(err)
	}
	return model.Value(raw)
}

// setBandwidth sets a quota with its period in a group without a quota, as a container runtime does.
func (n *testNode) setBandwidth(dir string, value model.Value) {
	n.t.Helper()
	if name := cgroup.PeriodFile(n.mount.Version, model.Quota); name != "" {
		n.setPeriod(dir, value.Period)
	}
	text := cgroup.Append(nil, n.mount.Version, model.Quota, cgroup.Raw(value))
	if err := write(n.file(dir, model.Quota), string(text)); err != nil {
		n.t.Fatal(err)
	}
}

// setPeriod sets the period alone, as a systemd that re-applies its own value does, or on v2 with the present quota.
func (n *testNode) setPeriod(dir string, period int64) {
	n.t.Helper()
	name := cgroup.PeriodFile(n.mount.Version, model.Quota)
	if name == "" {
		value := n.bandwidth(dir)
		value.Period = period
		n.setBandwidth(dir, value)
		return
	}
	text := cgroup.Append(nil, n.mount.Version, model.Burst, cgroup.Raw{Number: period})
	if err := write(filepath.Join(n.mount.OfKnob(model.Quota), dir, name), string(text)); err != nil {
		n.t.Fatal(err)
	}
}

func (n *testNode) expectBandwidth(dir string, want model.Value) {
	n.t.Helper()
	within(n.t, dir+" = "+want.String(), func() bool { return n.bandwidth(dir) == want },
		func() string { return n.bandwidth(dir).String() })
}

// TestQuotaPeriod checks that a quota is set and restored with its period, in groups that the kubelet (with
// cpuCFSQuotaPeriod) or systemd gave another period. The quotas of a pod and its container are the same relative to
// their periods, so on v1 neither of the two files could be written alone.
func TestQuotaPeriod(t *testing.T) {
	n := newNode(t)
	short := model.Value{Number: 20_000, Period: 10_000}
	lifted := model.Value{Number: model.Unlimited, Period: 10_000}
	want := model.QuotaOf(2000, model.DefaultQuotaPeriod)
	limit := model.Grant{RequestMilli: 1000, LimitMilli: 2000}
	source := newPods()
	var dirs [2][]string
	for i, was := range []model.Value{short, lifted} {
		uid, id := []string{"a", "b"}[i], []string{"0123456789aa", "0123456789bb"}[i]
		dir := n.pod(model.BestEffort, uid, 0, id)
		dirs[i] = []string{dir, dir + "/" + id}
		for _, dir := range dirs[i] {
			n.setBandwidth(dir, was)
		}
		source.set(batch(uid, limit, id))
	}
	r := n.start(source, func(c *agent.Config) { c.SyncPeriod = time.Hour })
	for _, dir := range slices.Concat(dirs[0], dirs[1]) {
		n.expectBandwidth(dir, want)
	}

	t.Log("the agent repairs the period")
	repairs := func() float64 { return metric(t, r.agent, v1alpha1.MetricRepairs, "file", model.Quota.String()) }
	before := repairs()
	n.setPeriod(dirs[0][1], 1_000_000)
	within(t, "a repair", func() bool { return repairs() > before }, func() string { return "none" })
	n.expectBandwidth(dirs[0][1], want)

	t.Log("another limit")
	source.set(batch("a", model.Grant{RequestMilli: 1000, LimitMilli: 500}, "0123456789aa"))
	for _, dir := range dirs[0] {
		n.expectBandwidth(dir, model.QuotaOf(500, model.DefaultQuotaPeriod))
	}

	t.Log("what the API does not know gets back what it had, and what has no limit keeps its period")
	source.change(func(s *model.Snapshot) {
		s.Pods = slices.DeleteFunc(slices.Clone(s.Pods), func(p *model.Pod) bool { return p.UID == "a" })
	})
	n.expectBandwidth(dirs[0][0], short)
	r.mu.Lock()
	r.policy.Mode = model.ModeDisabled
	r.mu.Unlock()
	for _, dir := range dirs[1] {
		n.expectBandwidth(dir, lifted)
	}
	if refused := metric(t, r.agent, v1alpha1.MetricRejected, "file", model.Quota.String()); refused != 0 {
		t.Errorf("the kernel refused %v writes of quotas", refused)
	}
}
