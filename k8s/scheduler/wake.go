package scheduler

import (
	"maps"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/waterline-io/waterline/internal/decide/cluster/place"
	"github.com/waterline-io/waterline/internal/model"
)

// A report, a policy or an agent is no resource for which the scheduler has events. So the view remembers which plugin
// refused which pod, and on which nodes, and moves those pods to the active queue that a change helps: a node that was
// refused to the pod is not refused any more. While a pod is on its way back to the queue, the scheduler remembers that
// it was moved.

// waiter is a pod that plugins refused. A plugin that did not refuse it has set nothing.
type waiter struct {
	pod *corev1.Pod

	noBatch nodeSet // nodes that BatchFit refused
	batch   *place.Settings

	noCPUs nodeSet // nodes that CPUSetFit refused
	asks   *asks
	cpus   *place.Settings

	claims *claims // of WeightSpread
}

// nodeSet is a set of nodes. One that would become large contains all nodes.
type nodeSet struct {
	names map[string]bool
	all   bool
}

const mostNodes = 64

func (s *nodeSet) add(name string) {
	switch {
	case s.all:
	case len(s.names) == mostNodes && !s.names[name]:
		s.all, s.names = true, nil
	case s.names == nil:
		s.names = map[string]bool{name: true}
	default:
		s.names[name] = true
	}
}

func (s *nodeSet) has(name string) bool { return s.all || s.names[name] }

// refused remembers a pod that a plugin refuses. remember sets what the plugin needs to know.
func (v *view) refused(p *corev1.Pod, remember func(*waiter)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	w := v.waiting[string(p.UID)]
	if w == nil {
		w = &waiter{}
		v.waiting[string(p.UID)] = w
	}
	w.pod = p
	remember(w)
}

// again forgets what a plugin remembered of an earlier attempt with a pod.
func (v *view) again(p *corev1.Pod, forget func(*waiter)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if w := v.waiting[string(p.UID)]; w != nil {
		forget(w)
	}
}

// helped returns the pods that the change of a node's report helps: none if only amounts changed. The lock is held.
func (v *view) helped(node string, old, now *report) []*corev1.Pod {
	before, after := v.policyFor(old), v.policyFor(now)
	if before == after && old != nil && now != nil && old.refusesAs(now) {
		return nil
	}
	return v.waitersFor(func(w *waiter) bool {
		return w.noBatch.has(node) && v.batchReason(node, old, w.batch).Code != "" &&
			v.batchReason(node, now, w.batch).Code == "" ||
			w.noCPUs.has(node) && v.cpuReason(node, old, w).Code != "" && v.cpuReason(node, now, w).Code == "" ||
			w.claims != nil && before != after && w.claims.differ(before, after)
	})
}

// refusesAs reports whether nodes with these reports refuse the same pods, under the same policy.
func (r *report) refusesAs(o *report) bool {
	a, b := &r.content, &o.content
	return a.Hot == b.Hot && a.Selling == b.Selling && a.Withdrawn == b.Withdrawn && r.unreadable == o.unreadable &&
		reflect.DeepEqual(r.room, o.room)
}

// helpedByTime returns the pods that are helped because a node's report stopped to count between two times: the free
// CPUs that it names refuse nobody any more. Time alone helps against no other reason. The lock is held.
func (v *view) helpedByTime(before, now time.Duration) (pods []*corev1.Pod) {
	settings := map[*place.Settings]bool{}
	for _, w := range v.waiting {
		if w.cpus != nil {
			settings[w.cpus] = true
		}
	}
	for s := range settings {
		for node, r := range v.reports {
			if r.room != nil && v.current(node, r, before, s) != nil && v.current(node, r, now, s) == nil {
				pods = append(pods, v.helpedByCPUs(node)...)
			}
		}
	}
	return pods
}

// dropWaiters forgets pods that do not wait any more. One that is deleted during its attempt is refused after its
// deletion was seen. The lock is held.
func (v *view) dropWaiters() {
	maps.DeleteFunc(v.waiting, func(uid string, w *waiter) bool {
		p, err := v.pods.Pods(w.pod.Namespace).Get(w.pod.Name)
		return err != nil || string(p.UID) != uid || p.Spec.NodeName != ""
	})
}

// helpedByAgent returns the pods that the return of a node's agent helps. The lock is held.
func (v *view) helpedByAgent(node string) []*corev1.Pod {
	return v.waitersFor(func(w *waiter) bool {
		return w.noBatch.has(node) && v.batchReason(node, v.reports[node], w.batch).Code == ""
	})
}

// helpedByCPUs returns the pods that are helped because CPUs of a node are no longer promised. The lock is held.
func (v *view) helpedByCPUs(node string) []*corev1.Pod {
	return v.waitersFor(func(w *waiter) bool {
		return w.noCPUs.has(node) && v.cpuReason(node, v.reports[node], w).Code == ""
	})
}

// helpedByPolicy returns the pods that ask something else of a node under another policy. The lock is held.
func (v *view) helpedByPolicy(old, now *model.Policy) []*corev1.Pod {
	return v.waitersFor(func(w *waiter) bool {
		return w.asks != nil && w.asks.differ(old, now) || w.claims != nil && w.claims.differ(old, now)
	})
}

// helpedByWeight returns the pods that may be helped because a pod with a node has another weight. The lock is held.
func (v *view) helpedByWeight(old, now *corev1.Pod) []*corev1.Pod {
	policy := v.policyFor(v.reports[now.Spec.NodeName])
	if v.weightOf(old, policy) == v.weightOf(now, policy) {
		return nil
	}
	return v.waitersFor(func(w *waiter) bool { return w.claims != nil })
}

func (v *view) waitersFor(helps func(*waiter) bool) (pods []*corev1.Pod) {
	for _, w := range v.waiting {
		if helps(w) {
			pods = append(pods, w.pod)
		}
	}
	return pods
}

// batchReason returns why a node with this report takes no batch. The lock is held.
func (v *view) batchReason(node string, r *report, s *place.Settings) place.Reason {
	n := place.Node{Agent: v.agents.of(node, v.now())}
	if r != nil {
		n.Report, n.Unreadable = &r.content, r.unreadable
	}
	return place.BatchFilter(&n, s)
}

// cpuReason returns why a node with this report has no CPUs for a pod. The lock is held. Whole cores are chosen as in
// Reserve: cores of two CPUs do not add up to three.
func (v *view) cpuReason(node string, r *report, w *waiter) place.Reason {
	report, zones, exclusive := v.cpusLocked(node, r, w.cpus)
	ask := w.asks.under(v.policyFor(r))
	want := wantOf(ask)
	why := place.CPUFilter(report, zones, exclusive, &want)
	if why.Code != "" || report == nil || !want.Cores {
		return why
	}
	if _, ok := choose(r.room.Topology, r.room.Free.Minus(v.ledger.Promised(node)), ask); !ok {
		return place.Uneven(zones, &want)
	}
	return place.Reason{}
}

// differ reports whether the pod wants other CPUs under another policy.
func (a *asks) differ(old, now *model.Policy) bool {
	before, after := wantOf(a.under(old)), wantOf(a.under(now))
	return before.Cores != after.Cores || before.Exclusive != after.Exclusive || !slices.Equal(before.CPUs, after.CPUs)
}

// differ reports whether weights can have another effect under another policy: on the pod, or on pods of the node.
func (c *claims) differ(old, now *model.Policy) bool {
	return *c.under(old) != *c.under(now) || givesWeights(old) || givesWeights(now) || old.Mode != now.Mode ||
		old.Weight.Scope != now.Weight.Scope || old.Weight.OverrideGuaranteed != now.Weight.OverrideGuaranteed ||
		old.Weight.Max != now.Weight.Max || old.Weight.Quota != now.Weight.Quota
}

// wake moves pods to the active queue.
func (v *view) wake(pods []*corev1.Pod) {
	if len(pods) == 0 {
		return
	}
	byName := make(map[string]*corev1.Pod, len(pods))
	for _, p := range pods {
		byName[p.Namespace+"/"+p.Name] = p
	}
	wokenPods.Add(float64(len(byName)))
	v.activator.Activate(v.log, byName)
}
