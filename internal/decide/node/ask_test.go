package node_test

import (
	"reflect"
	"testing"

	"github.com/waterline-io/waterline/internal/decide/node"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/fixture"
)

func TestAskOf(t *testing.T) {
	pod := func(change func(*model.Pod)) *model.Pod {
		p := fixture.Pod("a", model.Burstable)
		p.RequestMilli, p.LimitMilli = 2000, 2000
		p.Containers = []model.Container{{Name: "c", RequestMilli: 2000, LimitMilli: 2000}}
		change(p)
		return p
	}
	strict := fixture.Policy()
	strict.Privileges, strict.Weight.Max = nil, 0
	observes := fixture.Policy()
	observes.Mode = model.ModeObserve
	lifts := fixture.Policy()
	lifts.Weight.Quota = model.QuotaUnlimited
	for _, test := range []struct {
		name   string
		change func(*model.Pod)
		policy model.Policy
		want   node.Ask
	}{
		{"nothing", func(*model.Pod) {}, fixture.Policy(), node.Ask{}},
		{"a weight", func(p *model.Pod) { p.Annotations.Shares = 10240 }, fixture.Policy(), node.Ask{Shares: 10240}},
		{"more weight than the policy allows", func(p *model.Pod) { p.Annotations.Shares = 10240 }, strict,
			node.Ask{Shares: 2048}},
		{"more weight than spec.resources allows", func(p *model.Pod) {
			p.Annotations.Shares, p.PodLevelCPU = 10240, true
		}, fixture.Policy(), node.Ask{Shares: 2048}},
		{"no quota", func(*model.Pod) {}, lifts, node.Ask{Unlimited: true}},
		{"exclusive CPUs", func(p *model.Pod) {
			p.Annotations.CPUs, p.Annotations.Placement = model.CPUExclusive, model.PlaceCores
		}, fixture.Policy(), node.Ask{CPUs: []int{2}, Exclusive: true, Placement: model.PlaceCores}},
		{"home CPUs", func(p *model.Pod) { p.Annotations.CPUs = model.CPUShare }, fixture.Policy(),
			node.Ask{CPUs: []int{2}}},
		{"CPUs that the policy does not allow", func(p *model.Pod) { p.Annotations.CPUs = model.CPUExclusive }, strict,
			node.Ask{}},
		{"CPUs of a policy that only observes", func(p *model.Pod) { p.Annotations.CPUs = model.CPUExclusive }, observes,
			node.Ask{}},
		{"a weight of a policy that only observes", func(p *model.Pod) { p.Annotations.Shares = 10240 }, observes,
			node.Ask{}},
		{"CPUs that are not whole", func(p *model.Pod) {
			p.Annotations.CPUs, p.Containers[0].LimitMilli = model.CPUExclusive, 1500
		}, fixture.Policy(), node.Ask{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := node.AskOf(pod(test.change), &test.policy); !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}
