package main

import (
	"testing"

	"github.com/waterline-io/waterline/internal/agent/serve"
	onkube "github.com/waterline-io/waterline/internal/experiment/kube"
	"github.com/waterline-io/waterline/internal/model"
)

func TestWeightOf(t *testing.T) {
	const uid = "6016fc45-0a1b-4c2d-8e3f-123456789abc"
	shares := func(n int64) *model.Value { return &model.Value{Number: n} }
	class := serve.FileExplanation{Dir: "kubepods/burstable", Knob: "cpu.shares", Is: shares(2048)}
	for _, tc := range []struct {
		name string
		e    serve.Explanation
		want onkube.Weight
	}{
		{"cgroupfs", serve.Explanation{UID: uid, Files: []serve.FileExplanation{class, {Dir: "kubepods/burstable/pod" + uid, Knob: "cpu.shares", Is: shares(262144), Why: "Weighted"}}},
			onkube.Weight{Shares: 262144, Why: "Weighted"}},
		{"systemd, and held", serve.Explanation{UID: uid, Files: []serve.FileExplanation{
			{Dir: "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod6016fc45_0a1b_4c2d_8e3f_123456789abc.slice", Knob: "cpu.shares", Is: shares(102), Why: "Weighted", Deferred: "ObserveOnly"}}},
			onkube.Weight{Shares: 102, Why: "Weighted; ObserveOnly"}},
		{"none", serve.Explanation{UID: uid, Mode: "Off", Files: []serve.FileExplanation{class}},
			onkube.Weight{Why: "the agent gives the pods no weight: policy Off"}},
	} {
		if got := weightOf(&tc.e); got != tc.want {
			t.Errorf("%s: %+v, not %+v", tc.name, got, tc.want)
		}
	}
}
