package policystatus

import (
	"maps"
	"slices"
	"strings"

	"github.com/waterline-io/waterline/internal/decide/policy"
	"github.com/waterline-io/waterline/internal/manager/fleet"
	"github.com/waterline-io/waterline/internal/model"
)

// choices remembers the governing policy of each node. Of 5,000 nodes few change between two rounds.
type choices struct {
	version uint64 // of the policies
	nodes   map[string]choice
}

// choice is the result for one node.
type choice struct {
	uid      string
	labels   map[string]string // shared with the table, which replaces but never changes them
	optedOut string
	off      bool     // Waterline is stopped there
	governed string   // name of the governing policy; "": none
	outranks []string // policies that select the node too and are rolled out to it
	selected []string // policies whose selector it matches
}

// of returns the choice for a node.
func (c *choices) of(name string, n fleet.Node, policies []model.ClusterPolicy, version uint64) choice {
	if c.nodes == nil || c.version != version {
		c.version, c.nodes = version, map[string]choice{}
	}
	if known, found := c.nodes[name]; found && known.uid == n.UID && known.optedOut == n.OptedOut &&
		maps.Equal(known.labels, n.Labels) {
		return known
	}
	found := policy.Choose(policy.Node{UID: n.UID, Labels: n.Labels, OptedOut: n.OptedOut}, policies)
	now := choice{uid: n.UID, labels: n.Labels, optedOut: n.OptedOut, off: policy.Off(&found.Policy)}
	if found.Reason.Code == model.PolicyGoverns {
		now.governed = found.Policy.Name
	}
	for _, other := range found.Others {
		if other.Reason.Code == model.PolicyOutranked {
			now.outranks = append(now.outranks, other.Name)
		}
	}
	for i := range policies {
		if policies[i].Nodes.Matches(n.Labels) {
			now.selected = append(now.selected, policies[i].Name)
		}
	}
	slices.SortFunc(now.outranks, strings.Compare)
	c.nodes[name] = now
	return now
}
