package cluster

import (
	"fmt"

	"github.com/waterline-io/waterline/internal/decide/cluster/place"
	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/sim/jobs"
	"github.com/waterline-io/waterline/internal/sim/node"
	"github.com/waterline-io/waterline/internal/sim/yarn"
)

// crew is the place for a pool's worker on a node.
type crew struct {
	pool    *yarn.Pool
	at      int       // of the worker
	pod     *pod      // nil: it does not run
	has     pool.Size // what its containers have
	goodput float64   // core-seconds of containers that ended in the day
}

// poolJobs describes the jobs of the pool.
func (o *Options) poolJobs() jobs.Settings {
	all, _ := o.capacity()
	p := o.Pool
	return jobs.Settings{
		Cores: p.Load * float64(all.CPU) / 1000, Containers: p.Containers,
		Container: float64(p.Container.VCores) / float64(max(p.Core, 1)), Median: p.Median, Spread: p.Spread,
	}
}

// workerPod returns the pod of a worker.
func (o *Options) workerPod(i, number int) *pod {
	request := o.Pool.Request()
	p := &pod{Pod: &model.Pod{
		UID: fmt.Sprintf("a%05d.%d", i, number), QoS: model.BestEffort, Class: model.ClassBE, Tier: model.TierBatch,
		Owner: "WorkerPool/sim", Batch: request,
		Grant: model.Grant{RequestMilli: request.CPU, Memory: request.Memory},
	}, crew: true}
	p.Containers = []model.Container{{Name: "main", Grant: p.Grant}}
	p.place = place.Pod{Requests: unset, Batch: request, Weight: place.Weight{QoS: model.BestEffort}}
	p.name()
	return p
}

// lead lets the pool's jobs arrive, its ResourceManager place containers, and the manager do a round.
func (s *simulation) lead() {
	if s.pool == nil {
		return
	}
	now := node.Dawn().Add(s.now)
	s.pool.Counts = s.now >= 0
	for i, n := range s.nodes {
		n.pass(s.now, &s.count)
		s.pool.Live(i, now)
		s.pool.Workers[i].Node = n.Shown()
	}
	if s.now >= -begins {
		s.pool.Jobs.Arrive(now)
		s.pool.Place()
		s.pool.Round(now, func(i int) { s.staff(i) })
	}
	for _, n := range s.nodes {
		if used := s.pool.Used(n.crew.at); used != n.crew.has {
			n.crew.has = used
			n.need()
			n.run()
			n.changed(s.now)
		}
	}
}

// staff makes or deletes the pod of a worker, as the pool has just decided.
func (s *simulation) staff(i int) {
	c, n := s.nodes[i].crew, s.nodes[i]
	if c.pod != nil {
		n.remove(c.pod.UID, s.now)
		s.schedule.unbind(i, c.pod)
		c.pod = nil
	}
	if s.pool.Workers[i].Pod != nil {
		s.batches++
		c.pod = s.o.workerPod(i, s.batches)
		n.add(c.pod, s.now)
		s.schedule.bind(i, c.pod, s.now)
	}
	n.need()
	n.run()
}

// need computes what batch pods request, would use and hold.
func (n *member) need() {
	n.bound, n.wants, n.held = model.Amount{}, 0, 0
	for _, p := range n.pods[:n.batch] {
		p.wants = p.Batch.CPU
		if p.crew {
			s := n.crew
			core := max(s.pool.Core(), 1)
			p.wants = s.has.VCores * 1000 / core
			p.memory = s.pool.Overhead().Memory + s.has.MemoryMiB<<20
		}
		n.bound, n.wants, n.held = n.bound.Plus(p.Batch), n.wants+p.wants, n.held+p.memory
	}
}
