package manager

import (
	"maps"
	"slices"

	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
	"github.com/waterline-io/waterline/internal/manager/fleet"
	"github.com/waterline-io/waterline/internal/manager/pools"
	"github.com/waterline-io/waterline/internal/model"
)

// nodesForPools returns the nodes as the pool controller needs them. drains has the workers that are to leave, by node,
// and off the nodes on which Waterline is stopped.
func nodesForPools(f *fleet.Fleet, drains map[string]string, off map[string]bool) map[string]pools.Node {
	reports, _ := f.Reports.All()
	all := map[string]pools.Node{}
	f.Nodes.Each(func(name string, n fleet.Node) {
		r := reports[name]
		all[name] = pools.Node{
			Node: pool.Node{
				Cordoned: n.Cordoned, Off: off[name], Taints: n.Taints,
				Offer: r.Batch, Bound: r.Bound, Usable: r.Usable,
				Selling: r.Mode == string(model.ModeEnforce) && r.Offering && !r.Withdrawn,
			},
			Labels: n.Labels, Evict: drains[name],
		}
	})
	return all
}

// urgentReport reports whether a pool should not wait for its next round, two seconds at most, to read a report: less
// is sold, or something ends. What rises waits for minutes anyway.
func urgentReport(before, after fleet.Report) bool {
	less := func(before, after model.Amount) bool { return after.CPU < before.CPU || after.Memory < before.Memory }
	return before.UID != after.UID || before.Mode != after.Mode || before.Offering != after.Offering ||
		before.Withdrawn != after.Withdrawn || before.Evict != after.Evict ||
		less(before.Batch, after.Batch) || less(before.Usable, after.Usable) || less(after.Bound, before.Bound)
}

// urgentNode is the same for a Node. Of 500 nodes, one changes every few milliseconds: kubelets write their status.
func urgentNode(before, after fleet.Node) bool {
	return before.UID != after.UID || before.Cordoned != after.Cordoned || !slices.Equal(before.Taints, after.Taints) ||
		!maps.Equal(before.Labels, after.Labels)
}
