package web

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

// maxPods bounds the pods of one node that are shown.
const maxPods = 1000

// podList has the pods of a node, as of a moment.
type podList struct {
	at   time.Time
	pods []pod
	more bool // the node has more pods
}

// pod is a pod as pages show it. CPU is in milli-cores, memory in MiB.
type pod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Class     string `json:"class"`
	Tier      string `json:"tier,omitempty"`
	Pool      string `json:"pool,omitempty"`
	Phase     string `json:"phase"`
	Leaving   bool   `json:"leaving,omitempty"`
	// Weight is the weight in shares that the pod's annotation requests; 0: none. The policy may give it another one.
	Weight int64     `json:"weight,omitempty"`
	CPU    int64     `json:"cpu"` // its request: batch or mid CPU of a batch pod, else CPU
	Memory int64     `json:"memory"`
	CPUs   *podsCPUs `json:"cpus,omitempty"`
}

// podsCPUs is what a pod that requests CPUs of its own has.
type podsCPUs struct {
	Has    bool   `json:"has"`
	Reason string `json:"reason"`
	Text   string `json:"text"` // the CPUs, or why it has none
}

// reason explains a code to an operator: what it means, and what to do about it; "": nothing.
type reason struct {
	Means string `json:"means"`
	Fix   string `json:"fix"`
}

// node answers with one node: its report, and the pods on it that the caller may list.
func (s *Server) node(r *http.Request, c *caller) (any, error) {
	name := r.PathValue("name")
	// Verdicts are kept by name, and the API server reviews any: only names that an object can have are asked about.
	if wrong := validation.IsDNS1123Subdomain(name); len(wrong) > 0 {
		return nil, problem{http.StatusNotFound, fmt.Sprintf("%.64q is no name of a node: %s.", name, wrong[0])}
	}
	may := listNodes
	may.verb, may.name = "get", name
	if err := c.must(r.Context(), may); err != nil {
		return nil, err
	}
	var report v1alpha1.NodeReport
	err := s.o.Custom.Get().Resource("nodereports").Name(name).Do(r.Context()).Into(&report)
	switch {
	case apierrors.IsNotFound(err):
		return nil, problem{http.StatusNotFound, fmt.Sprintf(
			"There is no NodeReport named %.64q. A node has one once an agent has run on it.", name)}
	case err != nil:
		return nil, fmt.Errorf("reading the report of node %s: %w", name, err)
	}
	status := &report.Status
	row := (&rows{}).read(&report)
	now := s.o.Now()
	answer := map[string]any{
		"name": name, "now": now.Unix(), "state": row.state(now), "policy": status.Policy,
		"generation": status.PolicyGeneration, "mode": status.Mode, "selling": status.Selling,
		"unsupported": status.Unsupported, "harm": status.HarmSignal, "hot": status.Hot,
		"unrestored": status.Unrestored, "pressure": status.Pressure, "changed": row.changed,
		"cpu": resourceOf(status.CPU, milli), "memory": resourceOf(status.Memory, mebi),
		"conditions": conditions(status.Conditions), "cpus": cpusOf(status.CPUSets),
	}
	codes := append([]string{status.Hot}, status.Unsupported...)
	if e := status.Eviction; e != nil {
		codes = append(codes, e.Reason)
		answer["eviction"] = map[string]any{
			"namespace": e.Namespace, "name": e.Name, "reason": e.Reason, "message": e.Message,
		}
	}
	list, err := s.podsOn(r.Context(), name)
	if err != nil {
		return nil, err
	}
	shown, hidden, err := c.visible(r.Context(), list.pods)
	if err != nil {
		return nil, err
	}
	answer["pods"], answer["hiddenPods"], answer["morePods"] = shown, hidden, list.more
	for _, r := range []*v1alpha1.ResourceReport{status.CPU, status.Memory} {
		if r != nil {
			codes = append(codes, r.Reason)
		}
	}
	for i := range shown {
		if shown[i].CPUs != nil {
			codes = append(codes, shown[i].CPUs.Reason)
		}
	}
	reasons := map[string]reason{}
	for _, code := range codes {
		if m, known := s.reasons[code]; known {
			reasons[code] = reason{m.Text, m.Fix}
		}
	}
	answer["reasons"] = reasons
	return answer, nil
}

// visible returns the pods that the caller may list, and whether there are others.
func (c *caller) visible(ctx context.Context, pods []pod) (shown []pod, hidden bool, err error) {
	shown = []pod{}
	everywhere, err := c.may(ctx, listPods)
	if err != nil {
		return nil, false, err
	}
	if everywhere {
		return append(shown, pods...), false, nil
	}
	for i := range pods {
		granted, err := c.may(ctx, listPods.in(pods[i].Namespace))
		if err != nil {
			return nil, false, err
		}
		if !granted {
			hidden = true
			continue
		}
		shown = append(shown, pods[i])
	}
	return shown, hidden, nil
}

// podsOn returns the pods of a node. All callers share an answer for a while.
func (s *Server) podsOn(ctx context.Context, node string) (podList, error) {
	now := s.o.Now()
	s.mu.Lock()
	for name, list := range s.pods {
		if now.Sub(list.at) >= viewInterval {
			delete(s.pods, name)
		}
	}
	list, known := s.pods[node]
	s.mu.Unlock()
	if known {
		return list, nil
	}
	found, err := s.o.Client.CoreV1().Pods("").List(ctx, metav1.ListOptions{
		FieldSelector:   fields.OneTermEqualSelector("spec.nodeName", node).String(),
		ResourceVersion: "0", // the API server answers from memory
	})
	if err != nil {
		return podList{}, fmt.Errorf("listing the pods of node %s: %w", node, err)
	}
	list.at = now
	for i := range found.Items {
		if p, ok := podOf(&found.Items[i]); ok {
			list.pods = append(list.pods, p)
		}
	}
	slices.SortFunc(list.pods, func(a, b pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	if list.more = len(list.pods) > maxPods; list.more {
		list.pods = list.pods[:maxPods]
	}
	s.mu.Lock()
	s.pods[node] = list
	s.mu.Unlock()
	return list, nil
}

// podOf converts a pod; ok is false for one that has ended, or whose UID no API server assigns.
func podOf(p *corev1.Pod) (pod, bool) {
	m, valid := kube.Pod(p, "")
	if !valid || m.Ended {
		return pod{}, false
	}
	to := pod{
		Namespace: m.Namespace, Name: m.Name, Class: string(m.Class), Tier: string(m.Tier), Pool: m.Pool,
		Phase: string(p.Status.Phase), Leaving: m.Leaving, Weight: m.Annotations.Shares,
		CPU: m.RequestMilli, Memory: m.MemoryRequest >> 20,
	}
	if bought := m.Batch.Plus(m.Mid); m.Tier != "" {
		to.CPU, to.Memory = max(to.CPU, bought.CPU), max(to.Memory, bought.Memory>>20)
	}
	if at := m.CPUCondition; at != (model.PodCondition{}) {
		to.CPUs = &podsCPUs{at.Met, string(at.Reason), at.Message}
	}
	return to, true
}

// resourceOf returns the whole account of a resource by the names of the API; nil if there is none.
func resourceOf(r *v1alpha1.ResourceReport, in func(*resource.Quantity) int64) map[string]any {
	if r == nil {
		return nil
	}
	tiers := func(t *v1alpha1.TierQuantities) map[string]int64 {
		return map[string]int64{"mid": in(&t.Mid), "batch": in(&t.Batch)}
	}
	all := map[string]any{
		"capacity": in(&r.Capacity), "ceiling": in(&r.Ceiling), "system": in(&r.System), "online": in(&r.Online),
		"allowance": in(&r.Allowance), "offer": tiers(&r.Offer), "bound": tiers(&r.Bound), "reason": r.Reason,
		"peakHour": in(&r.Peaks.Hour), "peakDay": in(&r.Peaks.Day),
	}
	if r.Batch != nil {
		all["batch"] = in(r.Batch)
	}
	return all
}

type cpu struct {
	ID   int  `json:"id"`
	Core int  `json:"core"` // the lowest CPU of its core
	NUMA int  `json:"numa"`
	Free bool `json:"free"` // neither reserved nor a pod's own
}

// cpusOf returns the CPUs of a node; nil if its report has none that can be read.
func cpusOf(r *v1alpha1.CPUSetReport) map[string]any {
	room, err := kube.CPURoom(r)
	if room == nil || err != nil {
		return nil
	}
	all := []cpu{}
	for _, c := range room.Topology.CPUs {
		all = append(all, cpu{c.ID, c.Core, c.Node, room.Free.Has(c.ID)})
	}
	return map[string]any{"maxExclusive": room.Exclusive, "cpus": all}
}
