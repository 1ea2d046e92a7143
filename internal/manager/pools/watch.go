package pools

import (
	"maps"

	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/yarn"
)

// watch continues the histories of all nodes, also of those without a worker: one that comes there later can grow at
// once. Reports change only now and then, so a history is short.
func (r *round) watch() {
	k := r.k
	if k.watched == nil {
		k.watched = map[string]pool.History{}
	}
	for name, n := range r.nodes {
		k.watched[name] = k.watched[name].See(r.now, n.Rest(), n.Spare(), r.read.Window)
	}
	maps.DeleteFunc(k.watched, func(name string, _ pool.History) bool { _, there := r.nodes[name]; return !there })
}

// figures returns what a worker with this floor may offer over time on a node with so many workers. Without a node it
// is the floor.
func (r *round) figures(node string, workers int, floor pool.Size) pool.Figures {
	return r.k.watched[node].Windows(r.read.Window).Figures(func(rest model.Amount) pool.Size {
		return pool.Allowance(floor, pool.Size{
			MemoryMiB: yarn.MiB(rest.Memory), VCores: yarn.VCores(rest.CPU, r.read.VCoresPerCPU),
		}, workers)
	})
}
