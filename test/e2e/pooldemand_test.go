package e2e_test

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/test/bed/fakerm"
)

// testDemand follows a pool without workers while nothing waits. Containers wait: as many workers come as they need.
// One container runs on for long: its worker stays, and the other leaves. The ResourceManager stops saying what waits:
// the worker stays, and after a minute workers come as if something waited.
func (y *yard) testDemand(t *testing.T) {
	o := quick
	o.Expiry = time.Minute
	p := y.rm(t, "demand", "elastic", o, 60*time.Second, 30*time.Minute)
	for i := range 4 {
		y.offer(t, fmt.Sprintf("demand-%d", i), "demand", cpuMemory(9, 20))
	}
	y.create(t, specOf("demand", p.address, `, size: {demand: Follow, follow: {window: 0s}}, identity: {coolDown: 1s}`))
	empty := y.active(t, "demand", 0)
	ready := meta.FindStatusCondition(empty.Status.Conditions, v1alpha1.ConditionReady)
	if ready.Reason != "NoDemand" || empty.Status.Wanted != 0 || empty.Status.Replicas != 0 {
		t.Errorf("%+v, %+v", ready, empty.Status)
	}

	t.Log("two containers of the size of the floor, one of them short")
	one := fakerm.Demand{Label: "elastic", Size: fakerm.Size{MemoryMiB: 2048, VCores: 1}, PerNode: 1, All: 1}
	long, short := one, one
	long.For, short.For = time.Hour, 3*time.Second
	p.Ask("long", long)
	p.Ask("short", short)
	y.becomes(t, "demand", "two workers", func(s *v1alpha1.WorkerPool) bool { return s.Status.Replicas == 2 })
	y.active(t, "demand", 1)
	y.becomes(t, "demand", "the idle worker is gone", func(s *v1alpha1.WorkerPool) bool { return s.Status.Replicas == 1 })
	if n := p.Counted().Started; n != 2 {
		t.Errorf("%d containers started", n)
	}

	t.Log("another scheduler, which says nothing")
	p.Break(fakerm.Faults{OtherScheduler: true})
	y.complains(t, "demand", v1alpha1.ConditionDemandUnknown, "NoAnswer", "CapacityScheduler")
	y.becomes(t, "demand", "all run", func(s *v1alpha1.WorkerPool) bool { return s.Status.Active == 4 })
	p.Break(fakerm.Faults{})
	y.active(t, "demand", 1)
	p.Ask("long", fakerm.Demand{})
	y.check(t, p)
}
