package scheduler

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
)

// assume adds the use that is expected of a pod to a node.
func (v *view) assume(node string, p *corev1.Pod, estimate model.Amount) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.moves(string(p.UID), node)
	v.ledger.Assume(node, string(p.UID), v.now(), estimate)
	if asksWeight(p) {
		v.asking[string(p.UID)] = true
	}
}

// release forgets a pod that did not get its node.
func (v *view) release(p *corev1.Pod) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.forget(string(p.UID))
	delete(v.asking, string(p.UID))
}

// forget removes a pod from the ledger. The lock is held.
func (v *view) forget(uid string) {
	v.moves(uid, "")
	v.ledger.Forget(uid)
}

// moves notes a change of both nodes of a pod: that in the ledger, and that which it will have. The lock is held.
func (v *view) moves(uid, to string) {
	for _, node := range []string{v.ledger.Node(uid), to} {
		if node != "" {
			v.touch(node)
		}
	}
}

// promised returns the CPUs that are promised to a pod.
func (v *view) promised(p *corev1.Pod) model.CPUSet {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.ledger.CPUs(string(p.UID))
}

// weighs reports whether weights of pods with a node can matter: some pod has one, or a policy gives weights.
func (v *view) weighs() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.asking) > 0 || v.givesWeightsLocked()
}

// givesWeights reports whether a policy gives weights to pods that ask for none.
func (v *view) givesWeights() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.givesWeightsLocked()
}

func (v *view) givesWeightsLocked() bool {
	for _, p := range v.policies {
		if givesWeights(p) {
			return true
		}
	}
	return false
}

// givesWeights reports whether a policy gives weights to pods that ask for none.
func givesWeights(p *model.Policy) bool {
	return slices.ContainsFunc(p.Pods, func(d model.PodRule) bool { return d.Shares != 0 })
}

// mayWantCPUs reports whether a pod may want CPUs of its own: by an annotation, by its class, or by a policy that gives
// CPUs to pods. It is a quick test that most pods do not pass.
func (v *view) mayWantCPUs(p *corev1.Pod) bool {
	if cmp.Or(p.Annotations[v1alpha1.AnnotationCPUManager], p.Annotations[v1alpha1.AnnotationCPUManagerAlias],
		p.Labels[v1alpha1.LabelQoS], p.Labels[v1alpha1.LabelQoSAlias]) != "" {
		return true
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, policy := range v.policies {
		if slices.ContainsFunc(policy.Pods, func(r model.PodRule) bool { return r.CPUs != "" }) {
			return true
		}
	}
	return false
}

// hasReports reports whether any node has a report.
func (v *view) hasReports() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.reports) > 0
}

// nodesKnown returns the number of nodes in the cluster, as of a moment ago.
func (v *view) nodesKnown() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.known
}

// allPolicies returns all policies, and that of nodes without one.
func (v *view) allPolicies() []*model.Policy {
	v.mu.Lock()
	defer v.mu.Unlock()
	all := append(make([]*model.Policy, 0, len(v.policies)+1), v.policy)
	for _, p := range v.policies {
		all = append(all, p)
	}
	return all
}
