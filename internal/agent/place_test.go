package agent

import (
	"testing"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/nri"
)

// TestPlace checks what the container runtime is told, in each situation that a container can be created or updated in.
func TestPlace(t *testing.T) {
	web := &model.Pod{UID: "web", Containers: []model.Container{{Name: "main"}, {Name: "proxy"}, {Name: "setup", Init: true}}}
	job := &model.Pod{UID: "job", Containers: []model.Container{{Name: "main"}}}
	plan := func() *model.CPUPlan {
		return &model.CPUPlan{
			Node: model.CPUs(0, 1, 2, 3), Exclusive: model.CPUs(2, 3), Shared: model.CPUs(0, 1), Left: []string{"kubelets"},
			Own: []model.OwnCPUs{{UID: "web", Container: "main", Mode: model.CPUExclusive, CPUs: model.CPUs(2, 3), Memory: model.CPUs(1)}},
		}
	}
	homes := plan()
	homes.Exclusive, homes.Shared, homes.Own[0].Mode = model.CPUSet{}, homes.Node, model.CPUShare
	topology := &model.Topology{CPUs: []model.CPU{{ID: 0}, {ID: 1}, {ID: 2}, {ID: 3}}}
	var policy model.Policy // protects no memory
	for _, c := range []struct {
		name   string
		v      cgroup.Version
		plan   *model.CPUPlan
		static bool
		ask    nri.Container
		want   nri.Placement
		ok     bool
	}{
		{"its own CPUs, and their memory", cgroup.V1, plan(), false, nri.Container{PodUID: "web", Name: "main"}, nri.Placement{CPUs: "2-3", Mems: "1"}, true},
		{"on v2 too", cgroup.V2, plan(), false, nri.Container{PodUID: "web", Name: "main"}, nri.Placement{CPUs: "2-3", Mems: "1"}, true},
		{"memory stays while it runs", cgroup.V1, plan(), false, nri.Container{PodUID: "web", Name: "main", Update: true, CPUs: "0"}, nri.Placement{CPUs: "2-3"}, true},
		{"beside a container with its own", cgroup.V1, plan(), false, nri.Container{PodUID: "web", Name: "proxy"}, nri.Placement{CPUs: "0-1"}, true},
		{"before the others", cgroup.V1, plan(), false, nri.Container{PodUID: "web", Name: "setup"}, nri.Placement{CPUs: "2-3"}, true},
		{"a pod without", cgroup.V1, plan(), false, nri.Container{PodUID: "job", Name: "main"}, nri.Placement{CPUs: "0-1"}, true},
		{"a pod without, on v2 bound by its pod", cgroup.V2, plan(), false, nri.Container{PodUID: "job", Name: "main"}, nri.Placement{}, false},
		{"a pod that is not known yet", cgroup.V1, plan(), false, nri.Container{PodUID: "new", Name: "main"}, nri.Placement{CPUs: "0-1"}, true},
		{"nobody has any alone", cgroup.V1, homes, false, nri.Container{PodUID: "job", Name: "main"}, nri.Placement{CPUs: "0-3"}, false},
		{"old CPUs do not come back", cgroup.V2, plan(), false, nri.Container{PodUID: "job", Name: "main", Update: true, CPUs: "3"}, nri.Placement{CPUs: "0-1"}, true},
		{"nor when nobody asks any more", cgroup.V1, nil, false, nri.Container{PodUID: "job", Name: "main", Update: true, CPUs: "3"}, nri.Placement{CPUs: "0-3"}, true},
		{"unless they are the kubelet's", cgroup.V1, nil, true, nri.Container{PodUID: "job", Name: "main", Update: true, CPUs: "3"}, nri.Placement{}, false},
		{"nobody asks", cgroup.V1, nil, false, nri.Container{PodUID: "job", Name: "main"}, nri.Placement{}, false},
		{"the kubelet serves it", cgroup.V1, plan(), true, nri.Container{PodUID: "kubelets", Name: "main", CPUs: "3"}, nri.Placement{}, false},
		{"the kubelet's shared pool, less what is ours", cgroup.V1, plan(), true, nri.Container{PodUID: "job", Name: "main", CPUs: "0-3"}, nri.Placement{CPUs: "0-1"}, true},
		{"another plugin has chosen", cgroup.V1, plan(), false, nri.Container{PodUID: "job", Name: "main", CPUs: "1"}, nri.Placement{}, false},
	} {
		p := placing{version: c.v, policy: policy, kubelet: model.Kubelet{StaticCPUs: c.static}, topology: topology, pods: []*model.Pod{job, web}, cpus: c.plan}
		got, ok := p.answer(c.ask)
		if ok != c.ok || ok && got != c.want {
			t.Errorf("%s: %+v, %v; want %+v, %v", c.name, got, ok, c.want, c.ok)
		}
	}
}

// TestPlaceOOMScore checks that how soon a container is killed for want of memory is said when it is created, with or without
// CPUs, and left alone when it is updated or its pod is not known.
func TestPlaceOOMScore(t *testing.T) {
	p := placing{
		version: cgroup.V1, policy: model.Policy{Mode: model.ModeEnforce, Protect: model.ProtectPolicy{Memory: true}},
		pods: []*model.Pod{{UID: "web", Class: model.ClassLS}},
	}
	ask := nri.Container{PodUID: "web", Name: "main", OOMScore: 1000}
	if got, ok := p.answer(ask); !ok || got != (nri.Placement{OOMScore: 500}) {
		t.Errorf("with no CPUs: %+v, %v", got, ok)
	}
	p.cpus = &model.CPUPlan{Node: model.CPUs(0, 1), Exclusive: model.CPUs(1), Shared: model.CPUs(0)}
	if got, ok := p.answer(ask); !ok || got != (nri.Placement{CPUs: "0", OOMScore: 500}) {
		t.Errorf("with CPUs: %+v, %v", got, ok)
	}
	p.cpus = nil
	ask.Update = true
	if got, ok := p.answer(ask); ok {
		t.Errorf("updated: %+v", got)
	}
	ask.Update, ask.PodUID = false, "new"
	if got, ok := p.answer(ask); ok {
		t.Errorf("not known: %+v", got)
	}
}
