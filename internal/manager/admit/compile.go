package admit

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

// Source is a valid policy, with its rules that select batch pods.
type Source struct {
	Policy model.ClusterPolicy
	Pods   []kube.BatchRule
}

// Compile makes the rules of policies, in any order. Only policies in mode Enforce apply to new pods.
//
// Pods get Koordinator's names if a policy sells under them and none under ours. It is one choice for all pods: the
// node of a new pod is unknown, and the second call for the same pod must write the same names.
func Compile(sources []Source) Rules {
	var rules Rules
	ours, theirs := false, false
	for _, s := range slices.SortedFunc(slices.Values(sources),
		func(a, b Source) int { return cmp.Compare(a.Policy.Name, b.Policy.Name) }) {
		p := &s.Policy.Policy
		if p.Mode != model.ModeEnforce {
			continue
		}
		if p.CPU.Method != "" || p.Memory.Method != "" {
			ours, theirs = ours || !p.Koordinator, theirs || p.Koordinator
		}
		for _, rule := range s.Pods {
			rules.Pods = append(rules.Pods, Rule{
				Policy: s.Policy.Name, Priority: s.Policy.Priority,
				Selector: selector(rule.Selector), Namespaces: selector(rule.Namespaces),
				Percent: rule.Percent, Tier: rule.Tier,
			})
		}
	}
	rules.Koordinator = theirs && !ours
	slices.SortStableFunc(rules.Pods, func(a, b Rule) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.Policy, b.Policy))
	})
	return rules
}

// selector converts a selector, whose operators are those of Kubernetes. An invalid one selects nothing.
func selector(from model.Selector) labels.Selector {
	operators := map[model.SelectorOp]selection.Operator{
		model.In: selection.In, model.NotIn: selection.NotIn, model.Exists: selection.Exists,
		model.DoesNotExist: selection.DoesNotExist,
	}
	to := labels.NewSelector()
	for _, r := range from {
		requirement, err := labels.NewRequirement(r.Key, operators[r.Op], r.Values)
		if err != nil {
			return labels.Nothing()
		}
		to = to.Add(*requirement)
	}
	return to
}
