package admit

import (
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

// Compile makes the rules of policies, in any order. Only policies in mode Enforce apply to new pods, paused or not,
// and only while one of them sells something: under Koordinator's names, or under Waterline's.
func Compile(sources []Source, koordinator bool) Rules {
	var rules Rules
	for _, s := range sources {
		p := &s.Policy.Policy
		if p.Mode != model.ModeEnforce {
			continue
		}
		if p.CPU.Method != "" || p.Memory.Method != "" {
			rules.Ours, rules.Koordinator = !koordinator, koordinator
		}
		for _, rule := range s.Pods {
			rules.Pods = append(rules.Pods, Rule{
				Policy: s.Policy.Name, Priority: s.Policy.Priority,
				Selector: selector(rule.Selector), Namespaces: selector(rule.Namespaces),
				Percent: rule.Percent, Tier: rule.Tier,
			})
		}
	}
	slices.SortStableFunc(rules.Pods, func(a, b Rule) int { return rank(&a, &b) })
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
