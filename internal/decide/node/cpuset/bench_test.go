package cpuset_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/decide/node/cpuset"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/fixture"
)

// BenchmarkDecide512 measures a round on a machine of 512 CPUs, in which one pod of 200 begins to request its own
// CPUs. Of the others, 59 have exclusive CPUs, 40 have home CPUs and 100 request none. Each has two containers and a
// sandbox.
func BenchmarkDecide512(b *testing.B) {
	for _, v2 := range []bool{false, true} {
		b.Run(map[bool]string{false: "v1", true: "v2"}[v2], func(b *testing.B) {
			n := node512(v2)
			state := cpuset.State{}
			for range 5 { // until all pods have theirs
				n.Now = n.Now.Add(time.Minute)
				_, state = cpuset.Decide(n, &model.Policy{}, state)
			}
			if len(state.Allocations) != 2*99 {
				b.Fatalf("%d containers have CPUs", len(state.Allocations))
			}
			changed := *n.Pods[150]
			changed.Annotations.CPUs = model.CPUExclusive
			n.Pods[150] = &changed
			n.Now = n.Now.Add(time.Minute)
			b.ReportAllocs()
			for b.Loop() {
				result, after := cpuset.Decide(n, &model.Policy{}, state)
				if len(after.Allocations) != 2*100 || len(cpuset.Settle(n, result.CPUs, &after, nil)) == 0 {
					b.Fatalf("%d containers have CPUs", len(after.Allocations))
				}
			}
		})
	}
}

// node512 returns a node of two sockets of four NUMA nodes of eight caches of four cores of two threads.
func node512(v2 bool) *model.Node {
	n := fixture.Node(model.Amount{CPU: 508e3})
	n.Topology, n.Kubelet.ReservedCPUs, n.Tree.V2 = &model.Topology{}, model.CPUs(0, 1, 256, 257), v2
	for id := range 512 {
		core := id % 256
		cpu := model.CPU{ID: id, Socket: core / 128, Node: core / 32, L3: core / 4, Core: core}
		n.Topology.CPUs = append(n.Topology.CPUs, cpu)
	}
	for id := range 8 {
		n.Topology.Nodes = append(n.Topology.Nodes, model.NUMANode{ID: id, Memory: 64 << 30})
	}
	for i := range 200 {
		uid := fmt.Sprintf("%08x-0000-4000-8000-%012x", i, i)
		p := fixture.Pod(uid, model.Burstable)
		p.Created = n.Now.Add(time.Duration(i*7%200) * time.Second)
		ids := []string{fmt.Sprintf("%064x", i)} // of the sandbox and the containers
		cpus := int64(1000 * (1 + i%2))          // of each of its two containers
		switch i % 10 {
		case 1, 4, 7:
			p.Annotations.CPUs = model.CPUExclusive
		case 2, 5:
			p.Annotations.CPUs = model.CPUShare
		}
		if i == 1 { // pod 150, which requests CPUs in the benchmark, is the 60th
			p.Annotations.CPUs = model.CPUNone
		}
		for j, name := range []string{"app", "helper"} {
			c := model.Container{
				Name: name, ID: fmt.Sprintf("%064x", 1000*(j+1)+i), RequestMilli: cpus, LimitMilli: cpus,
			}
			if p.Annotations.CPUs != model.CPUExclusive {
				c.RequestMilli = 200
			}
			if i == 150 {
				c.RequestMilli, c.LimitMilli = 2000, 2000
			}
			p.RequestMilli += c.RequestMilli
			p.Containers = append(p.Containers, c)
			ids = append(ids, c.ID)
		}
		fixture.Run(&n, p, ids...)
	}
	return &n
}

// BenchmarkIdle512 measures a round on the same machine without pods, whose policy lets pods have their own CPUs: what
// it costs to know the room for them. The kubelet reserves an amount of CPU, of which the rule chooses the numbers.
func BenchmarkIdle512(b *testing.B) {
	n := node512(true)
	n.Pods, n.Kubelet.ReservedCPUs, n.Kubelet.ReservedMilli = nil, model.CPUSet{}, 4000
	policy := fixture.Policy()
	b.ReportAllocs()
	for b.Loop() {
		if result, _ := cpuset.Decide(n, &policy, cpuset.State{}); result.Room == nil || result.Room.Free.Len() != 508 {
			b.Fatalf("the room is %+v", result.Room)
		}
	}
}
