package node

import (
	"testing"

	"github.com/waterline-io/waterline/internal/model"
)

// Short names for tables.
type (
	started = model.RuntimeContainer
	placed  = model.Placement
)

// TestPlace checks the answer to the container runtime, in each situation in which it creates or updates a container.
func TestPlace(t *testing.T) {
	web := &model.Pod{UID: "web", Containers: []model.Container{{Name: "main"}, {Name: "proxy"},
		{Name: "setup", Init: true}}}
	job := &model.Pod{UID: "job", Containers: []model.Container{{Name: "main"}}}
	plan := func() *model.CPUPlan {
		return &model.CPUPlan{
			Node: model.CPUs(0, 1, 2, 3), Exclusive: model.CPUs(2, 3), Shared: model.CPUs(0, 1), Left: []string{"kubelets"},
			Own: []model.OwnCPUs{{UID: "web", Container: "main", Mode: model.CPUExclusive, CPUs: model.CPUs(2, 3),
				Memory: model.CPUs(1)}},
		}
	}
	homes := plan()
	homes.Exclusive, homes.Shared, homes.Own[0].Mode = model.CPUSet{}, homes.Node, model.CPUShare
	topology := &model.Topology{CPUs: []model.CPU{{ID: 0}, {ID: 1}, {ID: 2}, {ID: 3}}}
	policy := model.Policy{Mode: model.ModeEnforce} // protects no memory
	const v1, v2 = false, true
	for _, c := range []struct {
		name   string
		v2     bool
		plan   *model.CPUPlan
		static bool
		from   started
		want   placed
		ok     bool
	}{
		{"its own CPUs, and their memory", v1, plan(), false, started{PodUID: "web", Name: "main"},
			placed{CPUs: "2-3", Mems: "1"}, true},
		{"on v2 too", v2, plan(), false, started{PodUID: "web", Name: "main"}, placed{CPUs: "2-3", Mems: "1"}, true},
		{"memory stays while it runs", v1, plan(), false, started{PodUID: "web", Name: "main", Update: true, CPUs: "0"},
			placed{CPUs: "2-3"}, true},
		{"beside a container with its own", v1, plan(), false, started{PodUID: "web", Name: "proxy"},
			placed{CPUs: "0-1"}, true},
		{"before the others", v1, plan(), false, started{PodUID: "web", Name: "setup"}, placed{CPUs: "2-3"}, true},
		{"a pod without", v1, plan(), false, started{PodUID: "job", Name: "main"}, placed{CPUs: "0-1"}, true},
		{"a pod without, on v2 bound by its pod", v2, plan(), false, started{PodUID: "job", Name: "main"}, placed{},
			false},
		{"a pod that is not known yet", v1, plan(), false, started{PodUID: "new", Name: "main"}, placed{CPUs: "0-1"},
			true},
		{"nobody has any alone", v1, homes, false, started{PodUID: "job", Name: "main"}, placed{CPUs: "0-3"}, false},
		{"old CPUs do not come back", v2, plan(), false, started{PodUID: "job", Name: "main", Update: true, CPUs: "3"},
			placed{CPUs: "0-1"}, true},
		{"nor when nobody asks any more", v1, nil, false, started{PodUID: "job", Name: "main", Update: true, CPUs: "3"},
			placed{CPUs: "0-3"}, true},
		{"unless they are the kubelet's", v1, nil, true, started{PodUID: "job", Name: "main", Update: true, CPUs: "3"},
			placed{}, false},
		{"nobody asks", v1, nil, false, started{PodUID: "job", Name: "main"}, placed{}, false},
		{"the kubelet serves it", v1, plan(), true, started{PodUID: "kubelets", Name: "main", CPUs: "3"}, placed{},
			false},
		{"the kubelet's shared pool, less what is ours", v1, plan(), true,
			started{PodUID: "job", Name: "main", CPUs: "0-3"}, placed{CPUs: "0-1"}, true},
		{"another plugin has chosen", v1, plan(), false, started{PodUID: "job", Name: "main", CPUs: "1"}, placed{},
			false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := Placing{
				V2: c.v2, Policy: policy, Kubelet: model.Kubelet{StaticCPUs: c.static}, Topology: topology,
				Pods: []*model.Pod{job, web}, CPUs: c.plan,
			}
			got, ok := p.Place(c.from)
			if ok != c.ok || ok && got != c.want {
				t.Errorf("%+v, %v; want %+v, %v", got, ok, c.want, c.ok)
			}
		})
	}
}

// TestPlaceOOMScore checks that a container gets its OOM score when it is created, with or without CPUs, and keeps it
// when it is updated or its pod is unknown.
func TestPlaceOOMScore(t *testing.T) {
	p := Placing{
		Policy: model.Policy{Mode: model.ModeEnforce, Protect: model.ProtectPolicy{Memory: true}},
		Pods:   []*model.Pod{{UID: "web", Class: model.ClassLS}},
	}
	ask := started{PodUID: "web", Name: "main", OOMScore: 1000}
	if got, ok := p.Place(ask); !ok || got != (placed{OOMScore: 500}) {
		t.Errorf("with no CPUs: %+v, %v", got, ok)
	}
	p.CPUs = &model.CPUPlan{Node: model.CPUs(0, 1), Exclusive: model.CPUs(1), Shared: model.CPUs(0)}
	if got, ok := p.Place(ask); !ok || got != (placed{CPUs: "0", OOMScore: 500}) {
		t.Errorf("with CPUs: %+v, %v", got, ok)
	}
	p.CPUs = nil
	ask.Update = true
	if got, ok := p.Place(ask); ok {
		t.Errorf("updated: %+v", got)
	}
	ask.Update, ask.PodUID = false, "new"
	if got, ok := p.Place(ask); ok {
		t.Errorf("not known: %+v", got)
	}
}

// TestAwaits checks which containers must not run before a round has written the files of their pod.
func TestAwaits(t *testing.T) {
	limited := model.Grant{LimitMilli: 500, Memory: 64 << 20}
	pods := []*model.Pod{
		{UID: "batch", Class: model.ClassBE, Grant: limited, Containers: []model.Container{{Name: "main", Grant: limited}}},
		{UID: "labelled", Class: model.ClassBE, Containers: []model.Container{{Name: "main"}}},
		{UID: "partly", Containers: []model.Container{{Name: "main"}, {Name: "side", Grant: model.Grant{Memory: 1 << 20}}}},
		{UID: "web", Containers: []model.Container{{Name: "main", MemoryLimit: 1 << 20}}},
	}
	enforced := model.Policy{Mode: model.ModeEnforce}
	for _, c := range []struct {
		name    string
		placing *Placing
		from    started
		want    bool
	}{
		{"batch", &Placing{Policy: enforced, Pods: pods}, started{PodUID: "batch", Name: "main"}, true},
		{"a container that its pod has since it runs", &Placing{Policy: enforced, Pods: pods},
			started{PodUID: "batch", Name: "debugger"}, true},
		{"only a label", &Placing{Policy: enforced, Pods: pods}, started{PodUID: "labelled", Name: "main"}, false},
		{"beside a container with a limit", &Placing{Policy: enforced, Pods: pods},
			started{PodUID: "partly", Name: "main"}, true},
		{"native limits", &Placing{Policy: enforced, Pods: pods}, started{PodUID: "web", Name: "main"}, false},
		{"not known yet", &Placing{Policy: enforced, Pods: pods}, started{PodUID: "new", Name: "main"}, true},
		{"a static pod that is not known", &Placing{Policy: enforced, Pods: pods},
			started{PodUID: "new", Name: "main", Static: true}, false},
		{"observed", &Placing{Policy: model.Policy{Mode: model.ModeObserve}, Pods: pods},
			started{PodUID: "batch", Name: "main"}, false},
		{"no round yet", nil, started{PodUID: "batch", Name: "main"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.placing.Awaits(c.from); got != c.want {
				t.Errorf("it waits: %v, want %v", got, c.want)
			}
		})
	}
}
