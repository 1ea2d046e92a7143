package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/agent/serve"
)

type podAnswer struct {
	*serve.Explanation           // by its agent or a journal; nil: neither knows it
	Cluster            *podFacts `json:"cluster,omitempty"`
	Journal            *record   `json:"journal,omitempty"`
}

// podFacts is what the cluster knows of a pod.
type podFacts struct {
	Namespace string     `json:"namespace"`
	Name      string     `json:"name"`
	Gone      bool       `json:"gone,omitempty"`
	Phase     string     `json:"phase,omitempty"`
	Node      string     `json:"node,omitempty"`
	Batch     string     `json:"batch,omitempty"`     // whether it is batch, and why
	Evictions []string   `json:"evictions,omitempty"` // what NodeReports say of its eviction
	Events    []podEvent `json:"events,omitempty"`    // oldest first
	Unknown   []string   `json:"unknown,omitempty"`   // what could not be read, and why
}

type podEvent struct {
	At      time.Time `json:"at"`
	Reason  string    `json:"reason"`
	From    string    `json:"from"`
	Message string    `json:"message"`
	Count   int32     `json:"count,omitempty"`
}

// pod explains a pod by its agent and the cluster.
func (e *explainer) pod(ctx context.Context, a *apis, name string) (answer, error) {
	in := e.cluster.in()
	if a == nil {
		return e.podByAgent(ctx, e.address, name, nil)
	}
	var pod corev1.Pod
	err := a.core.Get().Namespace(in).Resource("pods").Name(name).Do(ctx).Into(&pod)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("looking up the pod: %w", err)
	}
	facts := &podFacts{Namespace: in, Name: name, Gone: err != nil, Node: e.node}
	facts.readEvents(ctx, a)
	facts.readEvictions(ctx, a)
	if err == nil {
		facts.Phase, facts.Node = string(pod.Status.Phase), pod.Spec.NodeName
		facts.Batch = whyBatch(ctx, a, &pod)
	}
	if facts.Node == "" {
		if facts.Gone && len(facts.Events) == 0 && len(facts.Evictions) == 0 {
			return nil, fmt.Errorf("there is no pod %s in namespace %s, and no event or NodeReport knows one; events are kept "+
				"for an hour. If it ran on a node that still has an agent, name that with --node", name, in)
		}
		return &podAnswer{Cluster: facts}, nil
	}
	address, stop, err := forwardToNode(ctx, a, facts.Node, agentPort)
	if err != nil {
		return &podAnswer{Cluster: facts}, fmt.Errorf("what the node decided is not known: %w", err)
	}
	defer stop()
	return e.podByAgent(ctx, address, name, facts)
}

// podByAgent has an agent explain a pod: as it is now, or by the agent's journal if a time is given or the pod is gone.
func (e *explainer) podByAgent(ctx context.Context, address, name string, facts *podFacts) (answer, error) {
	if e.at.IsZero() && (facts == nil || !facts.Gone) {
		var x serve.Explanation
		err := getFromAgent(ctx, address, "/explain", url.Values{"namespace": {e.cluster.in()}, "pod": {name}}, &x)
		var missing notFoundError
		switch {
		case err == nil:
			return &podAnswer{Explanation: &x, Cluster: facts}, nil
		case !errors.As(err, &missing):
			return factsOnly(facts, err)
		}
	}
	r := e.record("pod", name)
	if err := r.fromAgent(ctx, address); err != nil {
		return factsOnly(facts, err)
	}
	x, _ := serve.RecordedPod(r.chosen, r.namespace, r.name)
	return &podAnswer{Explanation: &x, Cluster: facts, Journal: r}, nil
}

// factsOnly is the answer where an agent knows nothing.
func factsOnly(facts *podFacts, err error) (answer, error) {
	if facts == nil {
		return nil, err
	}
	return &podAnswer{Cluster: facts}, err
}

// readEvents reads the events about the pod, and finds its node in them.
func (f *podFacts) readEvents(ctx context.Context, a *apis) {
	var all corev1.EventList
	err := a.core.Get().Namespace(f.Namespace).Resource("events").
		Param("fieldSelector", "involvedObject.kind=Pod,involvedObject.name="+f.Name).Do(ctx).Into(&all)
	if err != nil {
		f.Unknown = append(f.Unknown, fmt.Sprintf("events: %v", err))
		return
	}
	for _, o := range all.Items {
		f.Events = append(f.Events, podEvent{
			At: cmp.Or(o.LastTimestamp.Time, o.EventTime.Time), Reason: o.Reason,
			From: cmp.Or(o.Source.Component, o.ReportingController), Message: o.Message, Count: o.Count,
		})
		if f.Node == "" && f.Gone {
			f.Node = o.Source.Host // of the kubelet or the agent
		}
	}
	slices.SortStableFunc(f.Events, func(a, b podEvent) int { return a.At.Compare(b.At) })
}

// readEvictions finds the NodeReports that request the pod's eviction, or say what became of such a request.
func (f *podFacts) readEvictions(ctx context.Context, a *apis) {
	var reports v1alpha1.NodeReportList
	if err := list(ctx, a.custom, "nodereports", "", &reports); err != nil {
		f.Unknown = append(f.Unknown, err.Error())
		return
	}
	for _, r := range reports.Items {
		if e := r.Status.Eviction; e != nil && e.Namespace == f.Namespace && e.Name == f.Name {
			f.Evictions = append(f.Evictions, fmt.Sprintf("node %s requests its eviction: %s %s", r.Name, e.Reason, e.Message))
		}
		for _, c := range r.Status.Conditions {
			if c.Type == v1alpha1.ConditionEvicted && strings.HasPrefix(c.Message, "Pod "+f.Namespace+"/"+f.Name+" ") {
				f.Evictions = append(f.Evictions, fmt.Sprintf("%s, on node %s: %s", clock(c.LastTransitionTime.Time), r.Name,
					c.Message))
				if f.Node == "" && f.Gone {
					f.Node = r.Name
				}
			}
		}
	}
}

func (p *podAnswer) meanings() meanings { return reasons() }

func (p *podAnswer) print(out io.Writer) error {
	f := p.Cluster
	if e := p.Explanation; e != nil {
		fmt.Fprintf(out, "pod %s/%s  %s  uid %s  policy %s\n", e.Namespace, e.Name, e.QoS, e.UID, e.Mode)
	} else {
		fmt.Fprintf(out, "pod %s/%s\n", f.Namespace, f.Name)
	}
	if p.Journal != nil {
		p.Journal.print(out)
	}
	if f != nil {
		f.print(out)
	}
	if p.Explanation != nil {
		return printFiles(out, p.Explanation)
	}
	return nil
}

// maxEvents is how many events are shown, the newest ones.
const maxEvents = 10

func (f *podFacts) print(out io.Writer) {
	state := f.Phase
	if f.Gone {
		state = "gone"
	}
	fmt.Fprintf(out, "%s, node %s\n", state, cmp.Or(f.Node, "not known"))
	if f.Batch != "" {
		fmt.Fprintln(out, f.Batch)
	}
	printEach(out, "%s\n", f.Evictions)
	events := f.Events
	if hidden := len(events) - maxEvents; hidden > 0 {
		fmt.Fprintf(out, "%s of older times not shown\n", count(hidden, "event"))
		events = events[hidden:]
	}
	for _, e := range events {
		fmt.Fprintf(out, "event %s  %s by %s: %s\n", clock(e.At), e.Reason, e.From, e.Message)
	}
	printEach(out, "not known: %s\n", f.Unknown)
}

// printFiles prints each file of a pod, and what else its agent knows.
func printFiles(out io.Writer, e *serve.Explanation) error {
	if len(e.Files) == 0 {
		fmt.Fprintln(out, "Waterline sets none of its files: the pod has no weight of its own, and the kubelet's values stay")
	}
	for _, f := range e.Files {
		fmt.Fprintf(out, "\n%s\n", f.Dir)
		t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprintf(t, "  %s\tshould be\t%s\n", f.Knob, f.Should)
		if is := content(&f, !e.At.IsZero()); is != "" {
			fmt.Fprintf(t, "\tis\t%s\n", is)
		}
		fmt.Fprintf(t, "\twas\t%s\n", previousOf(&f))
		fmt.Fprintf(t, "\twhy\t%s\n", f.Why)
		if f.Deferred != "" {
			fmt.Fprintf(t, "\tnot written\t%s\n", f.Deferred)
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	if e.Hint != "" {
		fmt.Fprintf(out, "\n%s\n", e.Hint)
	}
	if e.Leaves != "" {
		fmt.Fprintln(out, e.Leaves)
	}
	printEach(out, "\n%s\n", e.Waiting)
	printEach(out, "\nnotice: %s\n", e.Notices)
	return nil
}

// content returns what stands in a file, and who wrote it; "": it is not recorded.
func content(f *serve.FileExplanation, recorded bool) string {
	switch {
	case f.Is == nil && recorded:
		return ""
	case f.Is == nil:
		return "not there"
	case f.Was == nil:
		return f.Is.String() + ", not written by Waterline"
	case *f.Is == f.Should:
		return f.Is.String() + ", written by Waterline"
	}
	return f.Is.String() + ", overwritten by another program"
}

// previousOf returns what stood in a file before Waterline wrote it.
func previousOf(f *serve.FileExplanation) string {
	if f.Was == nil {
		return "unchanged by us"
	}
	return f.Was.String() + ", the newest value of another writer"
}
