package cluster

import (
	"fmt"

	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
	"github.com/waterline-io/waterline/internal/model"
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
		c.pod = batchPod(fmt.Sprintf("a%05d.%d", i, s.batches), "WorkerPool/sim", s.o.Pool.Request(), 0)
		c.pod.crew = true
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
