package admit

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
)

// LimitRangeObstacles returns the bounds of a LimitRange that keep batch pods out of its namespace, such as "max of cpu
// for each Container", in their order in the LimitRange. The API server's plugin LimitRanger refuses a pod without a
// request for a resource that has a bound or a ratio, and adds its defaults only before webhooks run.
func LimitRangeObstacles(l *corev1.LimitRange) []string {
	var all []string
	for _, item := range l.Spec.Limits {
		if item.Type != corev1.LimitTypeContainer && item.Type != corev1.LimitTypePod {
			continue
		}
		for _, bound := range []struct {
			name string
			list corev1.ResourceList
		}{{"min", item.Min}, {"max", item.Max}, {"maxLimitRequestRatio", item.MaxLimitRequestRatio}} {
			for _, kind := range kinds {
				if _, found := bound.list[kind.native()]; found {
					all = append(all, bound.name+" of "+string(kind.native())+" for each "+string(item.Type))
				}
			}
		}
	}
	return all
}

// demanded are the resources that each container must request where a quota counts them.
var demanded = []corev1.ResourceName{
	corev1.ResourceCPU, corev1.ResourceRequestsCPU, corev1.ResourceLimitsCPU,
	corev1.ResourceMemory, corev1.ResourceRequestsMemory, corev1.ResourceLimitsMemory,
}

// BatchClasses returns the names of the chart's PriorityClasses of batch pods.
func BatchClasses() []string {
	return []string{v1alpha1.PriorityClassBatch, v1alpha1.PriorityClassMid, v1alpha1.PriorityClassWorker}
}

// QuotaObstacles returns the native resources that a ResourceQuota counts for batch pods, in order of name; none if its
// scope leaves batch pods out. The API server refuses a pod that does not request a resource that is counted. Each of
// the scopes Terminating and NotTerminating includes some batch pods, so it counts.
func QuotaObstacles(q *corev1.ResourceQuota) []string {
	if !slices.ContainsFunc(BatchClasses(), func(class string) bool { return counts(&q.Spec, class) }) {
		return nil
	}
	var all []string
	for _, name := range slices.Sorted(maps.Keys(q.Spec.Hard)) {
		if slices.Contains(demanded, name) {
			all = append(all, string(name))
		}
	}
	return all
}

// counts reports whether a quota counts some batch pods of a PriorityClass. These request no native resources, so they
// are BestEffort.
func counts(q *corev1.ResourceQuotaSpec, class string) bool {
	if slices.Contains(q.Scopes, corev1.ResourceQuotaScopeNotBestEffort) {
		return false
	}
	if q.ScopeSelector == nil {
		return true
	}
	for _, r := range q.ScopeSelector.MatchExpressions {
		named := slices.Contains(r.Values, class)
		switch {
		case r.ScopeName == corev1.ResourceQuotaScopeNotBestEffort,
			r.ScopeName == corev1.ResourceQuotaScopePriorityClass && r.Operator == corev1.ScopeSelectorOpDoesNotExist,
			r.ScopeName == corev1.ResourceQuotaScopePriorityClass && r.Operator == corev1.ScopeSelectorOpIn && !named,
			r.ScopeName == corev1.ResourceQuotaScopePriorityClass && r.Operator == corev1.ScopeSelectorOpNotIn && named:
			return false
		}
	}
	return true
}
