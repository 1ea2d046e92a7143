package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/rebalance"
	"github.com/waterline-io/waterline/internal/decide/node"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

// clusterFacts is what the API shows of a cluster, as far as a rebalance needs it.
type clusterFacts struct {
	at         time.Time // when it was read, by this machine's clock
	nodes      []corev1.Node
	pods       []corev1.Pod
	reports    map[string]*v1alpha1.NodeReport
	policies   map[string]*model.Policy
	namespaces map[string]map[string]string // labels
	budgets    []policyv1.PodDisruptionBudget
	localData  bool // pods with data on their node may be moved
}

// readCluster reads the cluster.
func readCluster(ctx context.Context, a *apis) (*clusterFacts, error) {
	f := &clusterFacts{
		at: time.Now(), reports: map[string]*v1alpha1.NodeReport{}, policies: map[string]*model.Policy{},
		namespaces: map[string]map[string]string{},
	}
	var nodes corev1.NodeList
	var namespaces corev1.NamespaceList
	var reports v1alpha1.NodeReportList
	var policies v1alpha1.ColocationPolicyList
	var budgets policyv1.PodDisruptionBudgetList
	if err := cmp.Or(
		list(ctx, a.core, "nodes", "", &nodes), f.readPods(ctx, a.core), list(ctx, a.core, "namespaces", "", &namespaces),
		list(ctx, a.custom, "nodereports", "", &reports), list(ctx, a.custom, "colocationpolicies", "", &policies),
		listPath(ctx, a.core, "/apis/policy/v1/poddisruptionbudgets", &budgets),
	); err != nil {
		return nil, err
	}
	f.nodes, f.budgets = nodes.Items, budgets.Items
	for i := range namespaces.Items {
		f.namespaces[namespaces.Items[i].Name] = namespaces.Items[i].Labels
	}
	for i := range reports.Items {
		f.reports[reports.Items[i].Name] = &reports.Items[i]
	}
	for i := range policies.Items {
		if p, err := kube.Policy(&policies.Items[i]); err == nil { // an invalid one governs no node
			f.policies[p.Name] = &p.Policy
		}
	}
	return f, nil
}

// readPods reads all pods, 500 at a time.
func (f *clusterFacts) readPods(ctx context.Context, core rest.Interface) error {
	for token := ""; ; {
		var page corev1.PodList
		err := core.Get().Resource("pods").Param("limit", "500").Param("continue", token).Do(ctx).Into(&page)
		if err != nil {
			return fmt.Errorf("listing pods: %w", err)
		}
		f.pods = append(f.pods, page.Items...)
		if token = page.Continue; token == "" {
			return nil
		}
	}
}

// input converts the facts.
func (f *clusterFacts) input(s rebalance.Settings) rebalance.Input {
	in := rebalance.Input{Settings: s}
	for i := range f.nodes {
		in.Nodes = append(in.Nodes, f.node(&f.nodes[i]))
	}
	budgets := newBudgetIndex(f.budgets)
	in.Budgets = budgets.all
	where := whereCache{nodes: f.nodes, known: map[string][]string{}}
	for _, p := range f.pods {
		pod, ok := kube.Pod(&p, "")
		if !ok || pod.Ended || p.Spec.NodeName == "" {
			continue
		}
		pod.NamespaceLabels = f.namespaces[p.Namespace]
		ask := f.ask(pod, p.Spec.NodeName)
		if pod.QoS == model.BestEffort {
			ask.Shares = 0 // its weight counts inside the BestEffort class only
		}
		in.Pods = append(in.Pods, rebalance.Pod{
			UID: string(p.UID), Namespace: p.Namespace, Name: p.Name, Node: p.Spec.NodeName, Owner: pod.Owner,
			Kept: f.kept(&p, pod, &ask), Online: pod.Class.Online(), Ready: kube.Ready(&p), Age: f.at.Sub(pod.Created),
			Priority: kube.Priority(&p), Weight: ask.Shares,
			Request: model.Amount{CPU: pod.RequestMilli, Memory: pod.MemoryRequest}, Limit: pod.LimitMilli,
			Budget: budgets.of(&p), Where: where.of(&p),
		})
	}
	return in
}

// node converts a Node with its report.
func (f *clusterFacts) node(n *corev1.Node) rebalance.Node {
	slots := n.Status.Allocatable[corev1.ResourcePods]
	out := rebalance.Node{Name: n.Name, Slots: int(slots.Value()), Allocatable: model.Amount{
		CPU: n.Status.Allocatable.Cpu().MilliValue(), Memory: n.Status.Allocatable.Memory().Value(),
	}}
	r := f.reports[n.Name]
	switch {
	case !holds(n, corev1.NodeReady):
		out.Absent = rebalance.NodeNotReady
	case r == nil:
		out.Absent = rebalance.ReportMissing
	case kube.Withdrawn(r):
		out.Absent = rebalance.NodeWithdrawn
	case r.Status.Mode == v1alpha1.ModeDisabled:
		out.Absent = rebalance.NodeDisabled
	case r.Status.CPU == nil || r.Status.Changed == nil:
		out.Absent = rebalance.ReportInvalid
	}
	if out.Absent != "" {
		return out
	}
	switch {
	case n.Spec.Unschedulable:
		out.Closed = rebalance.Unschedulable
	case r.Status.Hot != "" || r.Status.Eviction != nil:
		out.Closed = rebalance.NodeExhausted
	case holds(n, corev1.NodeMemoryPressure) || holds(n, corev1.NodeDiskPressure) || holds(n, corev1.NodePIDPressure):
		out.Closed = rebalance.PressureIsHigh
	}
	c := r.Status.CPU
	out.Age = f.at.Sub(r.Status.Changed.Time)
	out.CPU, out.Ceiling, out.System = c.Capacity.MilliValue(), c.Ceiling.MilliValue(), c.System.MilliValue()
	out.Online, out.Peak = c.Online.MilliValue(), c.Peaks.Hour.MilliValue()
	return out
}

// holds reports whether a condition of a node is True.
func holds(n *corev1.Node, condition corev1.NodeConditionType) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == condition && c.Status == corev1.ConditionTrue
	})
}

// ask returns what a pod asks of its node under the node's policy.
func (f *clusterFacts) ask(pod *model.Pod, on string) node.Ask {
	policy := model.DefaultPolicy()
	if r := f.reports[on]; r != nil {
		if p := f.policies[r.Status.Policy]; p != nil {
			policy = *p
		}
	}
	return node.AskOf(pod, &policy)
}

// kept returns why a pod must stay, as far as its own object and what it asks of its node show. Which CPUs of other
// nodes are free for pods with CPUs of their own is not evaluated.
func (f *clusterFacts) kept(p *corev1.Pod, pod *model.Pod, ask *node.Ask) rebalance.Code {
	switch {
	case kube.NodeBound(p):
		return rebalance.NodeBound
	case metav1.GetControllerOfNoCopy(p) == nil:
		return rebalance.NoController
	case pod.Critical:
		return rebalance.Critical
	case kube.WantsToStay(p):
		return rebalance.WantsToStay
	case p.Spec.RestartPolicy == corev1.RestartPolicyNever || p.Spec.RestartPolicy == corev1.RestartPolicyOnFailure:
		return rebalance.RunsToEnd
	case kube.Constrained(p) || len(ask.CPUs) > 0:
		return rebalance.Constrained
	case kube.LocalData(p) && !f.localData:
		return rebalance.LocalData
	}
	return ""
}

// budgetIndex finds the PodDisruptionBudget of a pod.
type budgetIndex struct {
	all       []rebalance.Budget
	selectors map[string][]budgetSelector // by namespace
}

type budgetSelector struct {
	name     string
	selector labels.Selector
}

// overlapping stands for the budgets of a pod with several, which the API server does not evict. It has no room.
const overlapping = "several PodDisruptionBudgets"

func newBudgetIndex(all []policyv1.PodDisruptionBudget) *budgetIndex {
	index := &budgetIndex{selectors: map[string][]budgetSelector{}}
	for _, b := range all {
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err != nil {
			selector = labels.Everything() // in doubt it holds all pods
		}
		name, room := b.Namespace+"/"+b.Name, int(b.Status.DisruptionsAllowed)
		if err != nil || b.Status.ObservedGeneration < b.Generation {
			room = 0 // its room is not known
		}
		index.all = append(index.all, rebalance.Budget{Name: name, Room: room})
		index.selectors[b.Namespace] = append(index.selectors[b.Namespace], budgetSelector{name, selector})
	}
	return index
}

func (x *budgetIndex) of(p *corev1.Pod) string {
	found := ""
	for _, b := range x.selectors[p.Namespace] {
		switch {
		case !b.selector.Matches(labels.Set(p.Labels)):
		case found != "":
			return overlapping
		default:
			found = b.name
		}
	}
	return found
}

// whereCache finds the nodes that the selectors and tolerations of a pod allow. Most pods of a cluster have the same.
type whereCache struct {
	nodes []corev1.Node
	known map[string][]string
}

func (w *whereCache) of(p *corev1.Pod) []string {
	var affinity *corev1.NodeAffinity
	if p.Spec.Affinity != nil {
		affinity = p.Spec.Affinity.NodeAffinity
	}
	key, _ := json.Marshal([]any{p.Spec.NodeSelector, affinity, p.Spec.Tolerations}) // no type here can fail
	if names, known := w.known[string(key)]; known {
		return names
	}
	names := []string{}
	required := nodeaffinity.GetRequiredNodeAffinity(p)
	for i := range w.nodes {
		n := &w.nodes[i]
		if match, err := required.Match(n); err == nil && match && kube.Tolerates(p, n.Spec.Taints) {
			names = append(names, n.Name)
		}
	}
	slices.Sort(names)
	w.known[string(key)] = names
	return names
}
