package scheduler

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/place"
	"github.com/waterline-io/waterline/internal/decide/node"
	"github.com/waterline-io/waterline/internal/decide/node/cpuset"
	"github.com/waterline-io/waterline/internal/model"
)

// cpuSetFit puts pods that want CPUs of their own where such CPUs are free, and tells the agent which ones.
type cpuSetFit struct {
	view     *view
	settings place.Settings
	client   clientset.Interface
}

var (
	_ fwk.PreFilterPlugin   = (*cpuSetFit)(nil)
	_ fwk.FilterPlugin      = (*cpuSetFit)(nil)
	_ fwk.PreScorePlugin    = (*cpuSetFit)(nil)
	_ fwk.ScorePlugin       = (*cpuSetFit)(nil)
	_ fwk.ReservePlugin     = (*cpuSetFit)(nil)
	_ fwk.PreBindPlugin     = (*cpuSetFit)(nil)
	_ fwk.EnqueueExtensions = (*cpuSetFit)(nil)
	_ fwk.SignPlugin        = (*cpuSetFit)(nil)
)

func newCPUSetFit(v *view, args CPUSetFitArgs, h fwk.Handle) (fwk.Plugin, error) {
	s, err := args.settings()
	return &cpuSetFit{v, s, h.ClientSet()}, err
}

// Name returns the plugin's name.
func (c *cpuSetFit) Name() string { return CPUSetFitName }

// asks are what a pod that needs a node asks, one for each policy.
type asks struct{ perPolicy[node.Ask] }

func (v *view) asks(p *corev1.Pod) *asks {
	return &asks{perPolicy[node.Ask]{of: func(policy *model.Policy) node.Ask {
		ask, _ := v.ask(p, policy)
		return ask
	}}}
}

func wantOf(a *node.Ask) place.Want {
	return place.Want{CPUs: a.CPUs, Cores: a.Placement == model.PlaceCores, Exclusive: a.Exclusive}
}

const asksKey fwk.StateKey = "waterline/" + CPUSetFitName

// PreFilter skips pods that want no CPUs of their own under any policy.
func (c *cpuSetFit) PreFilter(
	ctx context.Context, cycle fwk.CycleState, p *corev1.Pod, _ []fwk.NodeInfo,
) (*fwk.PreFilterResult, *fwk.Status) {
	if !c.view.mayWantCPUs(p) {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	await(ctx, c.view.podsSeen) // after a restart, their hints say which CPUs are promised
	a := c.view.asks(p)
	c.view.again(p, func(w *waiter) { w.noCPUs = nodeSet{} })
	for _, policy := range c.view.allPolicies() {
		if len(a.under(policy).CPUs) > 0 {
			write(cycle, asksKey, a)
			return nil, nil
		}
	}
	return nil, fwk.NewStatus(fwk.Skip)
}

// PreFilterExtensions returns nil: removing pods is not tried. Their CPUs are free only once a report says so, and
// until then each attempt would remove more pods.
func (c *cpuSetFit) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// Filter refuses a node without enough free CPUs.
func (c *cpuSetFit) Filter(_ context.Context, cycle fwk.CycleState, p *corev1.Pod, info fwk.NodeInfo) *fwk.Status {
	a, status := read[*asks](cycle, asksKey)
	if status != nil {
		return status
	}
	if why := c.has(p, a, info.Node().Name); why.Code != "" {
		return refuse(CPUSetFitName, fwk.UnschedulableAndUnresolvable, why)
	}
	return nil
}

// has returns why a node does not have the CPUs that a pod wants. The view remembers a pod that is refused.
func (c *cpuSetFit) has(p *corev1.Pod, a *asks, node string) place.Reason {
	w := waiter{asks: a, cpus: &c.settings}
	if c.judge(node, &w).Code == "" {
		return place.Reason{}
	}
	c.view.refused(p, func(known *waiter) {
		known.noCPUs.add(node)
		known.asks, known.cpus = a, &c.settings
	})
	// A report that changed before the pod was remembered would not wake it.
	return c.judge(node, &w)
}

func (c *cpuSetFit) judge(node string, w *waiter) place.Reason {
	c.view.mu.Lock()
	defer c.view.mu.Unlock()
	return c.view.cpuReason(node, c.view.reports[node], w)
}

// PreScore skips pods that want no CPUs of their own.
func (c *cpuSetFit) PreScore(_ context.Context, cycle fwk.CycleState, _ *corev1.Pod, _ []fwk.NodeInfo) *fwk.Status {
	if _, status := read[*asks](cycle, asksKey); status != nil {
		return fwk.NewStatus(fwk.Skip)
	}
	return nil
}

// Score scores a node by how little the pod's CPUs would fragment it.
func (c *cpuSetFit) Score(
	_ context.Context, cycle fwk.CycleState, _ *corev1.Pod, info fwk.NodeInfo,
) (int64, *fwk.Status) {
	a, status := read[*asks](cycle, asksKey)
	if status != nil {
		return 0, status
	}
	policy, _ := c.view.policyOf(info.Node().Name)
	want := wantOf(a.under(policy))
	_, zones, _ := c.view.cpusOf(info.Node().Name, &c.settings)
	return place.CPUScore(zones, &want), nil
}

// ScoreExtensions returns nil: scores are used as they are.
func (c *cpuSetFit) ScoreExtensions() fwk.ScoreExtensions { return nil }

// Reserve chooses the CPUs and promises them to the pod.
func (c *cpuSetFit) Reserve(_ context.Context, cycle fwk.CycleState, p *corev1.Pod, name string) *fwk.Status {
	a, status := read[*asks](cycle, asksKey)
	if status != nil {
		return nil // the pod wants none
	}
	policy, _ := c.view.policyOf(name)
	if ask := a.under(policy); len(ask.CPUs) > 0 && !c.view.promise(name, p, ask, &c.settings) {
		c.has(p, a, name) // so that the view remembers the refusal, and a report can wake the pod
		return fwk.NewStatus(fwk.Unschedulable, "the free CPUs of "+name+" are no longer enough")
	}
	return nil
}

// Unreserve takes the promise back.
func (c *cpuSetFit) Unreserve(_ context.Context, _ fwk.CycleState, p *corev1.Pod, _ string) {
	c.view.release(p)
}

// PreBindPreFlight skips pods without promised CPUs.
func (c *cpuSetFit) PreBindPreFlight(
	_ context.Context, _ fwk.CycleState, p *corev1.Pod, _ string,
) (*fwk.PreBindPreFlightResult, *fwk.Status) {
	if cpus := c.view.promised(p); cpus.Empty() && p.Annotations[v1alpha1.AnnotationCPUSetHint] == "" {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	return &fwk.PreBindPreFlightResult{AllowParallel: true}, nil
}

// PreBind writes the promised CPUs into the pod's annotation. A hint for a node without promised CPUs is removed: it is
// of another node, or a tenant's.
func (c *cpuSetFit) PreBind(ctx context.Context, _ fwk.CycleState, p *corev1.Pod, _ string) *fwk.Status {
	var value *string
	if cpus := c.view.promised(p); !cpus.Empty() {
		list := cpus.String()
		value = &list
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": p.UID, "annotations": map[string]*string{v1alpha1.AnnotationCPUSetHint: value},
	}})
	if err != nil {
		return fwk.AsStatus(fmt.Errorf("writing the patch of a hint: %w", err))
	}
	_, err = c.client.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.MergePatchType, body, metav1.PatchOptions{})
	if err != nil {
		return fwk.AsStatus(fmt.Errorf("patching %s of pod %s/%s: %w",
			v1alpha1.AnnotationCPUSetHint, p.Namespace, p.Name, err))
	}
	return nil
}

// EventsToRegister returns the events after which CPUs may be free: a pod has left, or there is another node. Reports
// wake pods through the view.
func (c *cpuSetFit) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{
		{Event: fwk.ClusterEvent{Resource: fwk.Pod, ActionType: fwk.Delete}, QueueingHintFn: c.leaves},
		{Event: fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add}, QueueingHintFn: c.newNode},
	}, nil
}

// SignPod refuses to sign pods that may want CPUs: which CPUs are free changes by itself.
func (c *cpuSetFit) SignPod(_ context.Context, p *corev1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	if c.view.mayWantCPUs(p) {
		return nil, fwk.NewStatus(fwk.Unschedulable, "pods with CPUs of their own are not scheduled by signature")
	}
	return nil, nil
}

// cpusOf returns what a node reports, its zones without promised CPUs, and how many CPUs can still become exclusive. A
// report that does not count names no CPUs.
func (v *view) cpusOf(name string, s *place.Settings) (*place.Report, []place.Zone, int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.cpusLocked(name, v.reports[name], s)
}

// cpusLocked is cpusOf for a node with this report. The lock is held.
func (v *view) cpusLocked(name string, r *report, s *place.Settings) (*place.Report, []place.Zone, int) {
	if r == nil || r.room == nil {
		return nil, nil, 0
	}
	report := v.current(name, r, v.now(), s)
	if report == nil {
		return nil, nil, 0
	}
	room, promised := r.room, v.ledger.Promised(name)
	taken := promised.And(room.Free)
	return report, place.ZonesOf(room.Topology, room.Free.Minus(promised)), room.Exclusive - taken.Len()
}

// current returns what a node's report says if it counts at a time; else nil. The lock is held.
func (v *view) current(name string, r *report, at time.Duration, s *place.Settings) *place.Report {
	content := r.content
	content.Age = at - r.at
	n := place.Node{Report: &content, Unreadable: r.unreadable, Agent: v.agents.of(name, at)}
	report, _ := n.Current(s)
	return report
}

// promise chooses CPUs for a pod on a node, as the agent would, and promises them. It reports whether the node has
// enough. A node that names no CPUs gets no promise.
func (v *view) promise(name string, p *corev1.Pod, ask *node.Ask, s *place.Settings) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	r := v.reports[name]
	if _, zones, _ := v.cpusLocked(name, r, s); zones == nil {
		return true
	}
	all, ok := choose(r.room.Topology, r.room.Free.Minus(v.ledger.Promised(name)), ask)
	if !ok {
		return false
	}
	v.moves(string(p.UID), name)
	v.ledger.Promise(name, string(p.UID), v.now(), all)
	return true
}

// choose chooses free CPUs for each container of a pod. It returns false if they are not enough.
func choose(t *model.Topology, free model.CPUSet, ask *node.Ask) (all model.CPUSet, ok bool) {
	for _, n := range ask.CPUs {
		cpus, ok := cpuset.Take(t, free, n, ask.Placement)
		if !ok {
			return model.CPUSet{}, false
		}
		all, free = all.Or(cpus), free.Minus(cpus)
	}
	return all, true
}
