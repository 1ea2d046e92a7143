package convert

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/waterline-io/waterline/api/v1alpha1"
)

// choice is one strategy of each section, and the nodes that have them all.
type choice struct {
	nodes *v1alpha1.LabelSelector
	ranks []int       // of each section: which of its strategies; the cluster's comes last
	of    []*strategy // of each section; nil: none
}

// maxPolicies bounds the policies of a conversion.
const maxPolicies = 64

// policies makes a policy for each choice that a node can have. In each section, the first strategy that selects a
// node counts. So of two choices that select it, the one counts whose strategies come first, section by section.
func (k *koordinator) policies() error {
	choices := []choice{{}}
	for _, section := range sections {
		var next []choice
		for _, c := range choices {
			options := append(slices.Clone(k.nodes[section]), k.cluster[section])
			for rank, s := range options {
				nodes := c.nodes
				if s != nil {
					joined, possible := both(c.nodes, s.nodes)
					if !possible {
						continue
					}
					nodes = joined
				}
				next = append(next, choice{nodes, append(slices.Clone(c.ranks), rank), append(slices.Clone(c.of), s)})
			}
		}
		choices = reachable(next)
		if len(choices) > maxPolicies {
			return fmt.Errorf("the node selectors overlap in more than %d ways, up to %s: use the same selectors in all "+
				"sections, or selectors that exclude each other", maxPolicies, section)
		}
	}
	for i, c := range choices {
		k.all = nil
		p := Policy{Priority: int32(len(choices) - 1 - i)}
		var named []string
		for j, s := range c.of {
			if s == nil {
				continue
			}
			if s.nodes != nil && !slices.Contains(named, s.name) {
				named = append(named, s.name)
			}
			// What holds everywhere is noted once, at the last policy.
			if s.nodes != nil || i == len(choices)-1 {
				k.take(s.from, sections[j], s.own)
			}
		}
		p.Name = policyName(append([]string{"koordinator"}, named...)...)
		for slices.ContainsFunc(k.result.Policies, func(other Policy) bool { return other.Name == p.Name }) {
			p.Name = policyName(p.Name, strconv.Itoa(i+1))
		}
		p.Spec.NodeSelector = c.nodes
		k.fill(&p.Spec, c)
		p.Notes = k.all
		k.result.Policies = append(k.result.Policies, p)
	}
	return nil
}

// reachable sorts choices by their ranks, and leaves out those that no node has, because an earlier one selects all of
// their nodes.
func reachable(all []choice) []choice {
	slices.SortStableFunc(all, func(a, b choice) int { return slices.Compare(a.ranks, b.ranks) })
	var kept []choice
	for _, c := range all {
		conditions := requirements(c.nodes)
		hasAll := func(earlier choice) bool { return conditions.IsSuperset(requirements(earlier.nodes)) }
		if !slices.ContainsFunc(kept, hasAll) {
			kept = append(kept, c)
		}
	}
	return kept
}
