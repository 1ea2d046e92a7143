package scheduler

import (
	"maps"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-helpers/resource"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/place"
	"github.com/waterline-io/waterline/internal/decide/node"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

// seePod takes in a pod that is new or changed. After a restart, or when another scheduler binds a pod, this is how the
// ledger learns of it.
func (v *view) seePod(obj any) {
	p, ok := obj.(*corev1.Pod)
	if !ok || p.Spec.NodeName == "" {
		return
	}
	now := v.now()
	uid := string(p.UID)
	if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		v.losePod(p)
		return
	}
	v.mu.Lock()
	delete(v.waiting, uid)
	if v.asking[uid] = asksWeight(p); !v.asking[uid] {
		delete(v.asking, uid)
	}
	s := v.loadLocked()
	if has := since(p); has < s.Settle && !v.ledger.Has(p.Spec.NodeName, uid) && !isBatch(p) {
		v.moves(uid, p.Spec.NodeName)
		v.ledger.Assume(p.Spec.NodeName, uid, now-has, place.Estimate(requests(p), &s))
	}
	var helps []*corev1.Pod
	before := v.ledger.CPUs(uid)
	if own := v.ownCPUs(p, before); own != before {
		v.moves(uid, p.Spec.NodeName)
		v.ledger.Promise(p.Spec.NodeName, uid, now, own)
		if !before.Empty() {
			helps = v.helpedByCPUs(p.Spec.NodeName)
		}
	}
	if v.agents.has(p) {
		v.touch(p.Spec.NodeName)
		if !v.agents.seen { // until now, agents were unknown, and not missed anywhere
			for _, c := range v.changed {
				c.all = true
			}
		}
		if v.agents.see(p, now) {
			helps = append(helps, v.helpedByAgent(p.Spec.NodeName)...)
		}
	}
	v.mu.Unlock()
	v.wake(helps)
}

// seeChange takes in a pod that changed.
func (v *view) seeChange(old, obj any) {
	before, ok := old.(*corev1.Pod)
	p, still := obj.(*corev1.Pod)
	if !ok || !still {
		v.seePod(obj)
		return
	}
	bound := p.Spec.NodeName != ""
	if bound {
		v.seePod(p)
	}
	if maps.Equal(before.Annotations, p.Annotations) && maps.Equal(before.Labels, p.Labels) &&
		(bound || requests(before) == requests(p)) {
		return
	}
	var helps []*corev1.Pod
	v.mu.Lock()
	switch {
	case bound:
		helps = v.helpedByWeight(before, p)
	case v.waiting[string(p.UID)] != nil: // it may ask for less now
		helps = append(helps, p)
	}
	v.mu.Unlock()
	v.wake(helps)
}

// seeNamespace takes in a namespace that changed. Its labels decide what policies give to its pods.
func (v *view) seeNamespace(old, obj any) {
	before, ok := old.(*corev1.Namespace)
	now, still := obj.(*corev1.Namespace)
	if !ok || !still || maps.Equal(before.Labels, now.Labels) {
		return
	}
	v.mu.Lock()
	v.version.Add(1)
	helps := v.waitersFor(func(w *waiter) bool { return w.asks != nil || w.claims != nil })
	v.mu.Unlock()
	v.wake(helps)
}

// losePod forgets a pod. CPUs that were promised to it help others at once.
func (v *view) losePod(obj any) {
	if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	p, ok := obj.(*corev1.Pod)
	if !ok {
		return
	}
	uid := string(p.UID)
	v.mu.Lock()
	delete(v.waiting, uid)
	delete(v.asking, uid)
	var helps []*corev1.Pod
	had, node := !v.ledger.CPUs(uid).Empty(), v.ledger.Node(uid)
	if v.forget(uid); had {
		helps = v.helpedByCPUs(node)
	}
	if v.agents.has(p) {
		v.agents.drop(uid, v.now())
		v.touch(p.Spec.NodeName)
	}
	v.mu.Unlock()
	v.wake(helps)
}

// since returns for how long a pod has had its node.
func since(p *corev1.Pod) time.Duration {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue {
			return max(time.Since(c.LastTransitionTime.Time), 0)
		}
	}
	return 0
}

// asksWeight reports whether a pod asks for a weight by annotation.
func asksWeight(p *corev1.Pod) bool {
	return p.Annotations[v1alpha1.AnnotationCPUShare] != "" || p.Annotations[v1alpha1.AnnotationCPUShareAlias] != ""
}

// isBatch reports whether a pod requests batch or mid resources.
func isBatch(p *corev1.Pod) bool {
	batch, mid := sold(p)
	return batch != model.Amount{} || mid != model.Amount{}
}

// sold returns the batch and mid resources that a pod requests.
func sold(p *corev1.Pod) (batch, mid model.Amount) {
	if !requestSold(p.Spec.Containers) && !requestSold(p.Spec.InitContainers) { // most pods
		return batch, mid
	}
	batch, mid, _ = kube.Sold(resource.PodRequests(p, resource.PodResourcesOptions{}))
	return batch, mid
}

// requestSold reports whether any of the containers may request batch or mid resources.
func requestSold(containers []corev1.Container) bool {
	for i := range containers {
		for name := range containers[i].Resources.Requests {
			if strings.Contains(string(name), "/batch-") || strings.Contains(string(name), "/mid-") {
				return true
			}
		}
	}
	return false
}

// requests returns the CPU and memory that a pod requests.
func requests(p *corev1.Pod) model.Amount {
	if s := &p.Spec; len(s.InitContainers) == 0 && s.Overhead == nil && s.Resources == nil { // most pods
		var sum model.Amount
		for i := range s.Containers {
			list := s.Containers[i].Resources.Requests
			sum = sum.Plus(model.Amount{CPU: list.Cpu().MilliValue(), Memory: list.Memory().Value()})
		}
		return sum
	}
	list := resource.PodRequests(p, resource.PodResourcesOptions{})
	return model.Amount{CPU: list.Cpu().MilliValue(), Memory: list.Memory().Value()}
}

// ownCPUs returns the CPUs that belong to a pod with a node: those that its agent says, else those that were promised
// to it, else those of its hint. After a restart, the hint is what is left of a promise. A tenant can write a hint: it
// counts only for as many CPUs as the policy of the node gives the pod. The lock is held.
func (v *view) ownCPUs(p *corev1.Pod, promised model.CPUSet) model.CPUSet {
	for _, c := range p.Status.Conditions {
		if c.Type != v1alpha1.ConditionCPUSet {
			continue
		}
		if c.Status != corev1.ConditionTrue {
			return model.CPUSet{}
		}
		if cpus, ok := listed(c.Message); ok {
			return cpus
		}
	}
	text := p.Annotations[v1alpha1.AnnotationCPUSetHint]
	if !promised.Empty() || text == "" {
		return promised
	}
	hint, err := model.ParseCPUs(text)
	if err != nil {
		return promised
	}
	ask, _ := v.ask(p, v.policyFor(v.reports[p.Spec.NodeName]))
	want := wantOf(&ask)
	if hint.Len() != want.Total() {
		return promised
	}
	return hint
}

// hasCPUs reports whether CPUs belong to a pod, as far as its object shows.
func (v *view) hasCPUs(p *corev1.Pod) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	own := v.ownCPUs(p, model.CPUSet{})
	return !own.Empty()
}

// listed reads the CPUs in the message of the condition about a pod's CPUs: lists, each after the name of a container
// unless it is the pod's, separated by a comma and a space.
func listed(message string) (all model.CPUSet, ok bool) {
	for _, part := range strings.Split(message, ", ") {
		_, list, named := strings.Cut(part, " ")
		if !named {
			list = part
		}
		cpus, err := model.ParseCPUs(list)
		if err != nil || cpus.Empty() {
			return model.CPUSet{}, false
		}
		all = all.Or(cpus)
	}
	return all, true
}

// convert converts a pod and adds the labels of its namespace; nil for a pod that no API server would have.
func (v *view) convert(p *corev1.Pod) *model.Pod {
	pod, ok := kube.Pod(p, "")
	if !ok {
		return nil
	}
	if ns, err := v.namespaces.Get(p.Namespace); err == nil {
		pod.NamespaceLabels = ns.Labels
	}
	return pod
}

// ask returns what a pod asks of a node with this policy.
func (v *view) ask(p *corev1.Pod, policy *model.Policy) (node.Ask, *model.Pod) {
	pod := v.convert(p)
	if pod == nil {
		return node.Ask{}, nil
	}
	return node.AskOf(pod, policy), pod
}

// perPolicy keeps what of a pod depends on the policy of its node. The framework filters several nodes at the same
// time.
type perPolicy[T any] struct {
	of func(*model.Policy) T

	mu sync.Mutex
	by map[*model.Policy]*T
}

// under returns the value under a policy.
func (p *perPolicy[T]) under(policy *model.Policy) *T {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.by[policy]
	if known == nil {
		if p.by == nil {
			p.by = map[*model.Policy]*T{}
		}
		value := p.of(policy)
		known = &value
		p.by[policy] = known
	}
	return known
}
