package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/policy"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

func statusCommand() *cobra.Command {
	var cluster reach
	var o output
	c := &cobra.Command{
		Use:   "status",
		Short: "Show the cluster on one screen: nodes by state, policies, what is offered and sold, pools, troubles",
		Long: `Show the cluster on one screen: how many nodes are in which state, the policies, how much is offered and sold, the
pools, and what is wrong with what to do about it. With -o wide, show each node too.

It runs anywhere, and needs the rights to list nodes, nodereports, colocationpolicies and workerpools, and pods in
Waterline's namespace. Figures are those of the NodeReports, which agents write when something changes.`,
		Example: "  waterline status\n  waterline status -o wide --context production",
		Args:    noArguments,
		RunE: cluster.connected(func(c *cobra.Command, a *apis) error {
			ctx, cancel := context.WithTimeout(c.Context(), time.Minute)
			defer cancel()
			r, err := readInventory(ctx, a)
			if err != nil {
				return err
			}
			s := r.status(time.Now())
			return o.print(c.OutOrStdout(), s, func() error { return s.print(c.OutOrStdout(), o.wide()) })
		}),
	}
	cluster.flags(c)
	o.flag(c, formWide)
	return c
}

// inventory is what the API has of Waterline and the nodes.
type inventory struct {
	nodes    []corev1.Node
	reports  map[string]*v1alpha1.NodeReport // by node
	policies []v1alpha1.ColocationPolicy
	pools    []v1alpha1.WorkerPool
	pods     []corev1.Pod // of Waterline itself
	home     string       // their namespace
}

// readInventory lists everything once.
func readInventory(ctx context.Context, a *apis) (*inventory, error) {
	var nodes corev1.NodeList
	var reports v1alpha1.NodeReportList
	var policies v1alpha1.ColocationPolicyList
	var pools v1alpha1.WorkerPoolList
	var pods corev1.PodList
	if err := cmp.Or(
		list(ctx, a.core, "nodes", "", &nodes), list(ctx, a.custom, "nodereports", "", &reports),
		list(ctx, a.custom, "colocationpolicies", "", &policies), list(ctx, a.custom, "workerpools", "", &pools),
		list(ctx, a.core, "pods", a.home(ctx), &pods),
	); err != nil {
		return nil, err
	}
	r := newInventory(nodes.Items, reports.Items, policies.Items, pools.Items, pods.Items)
	r.home = a.home(ctx)
	return r, nil
}

func newInventory(nodes []corev1.Node, reports []v1alpha1.NodeReport, policies []v1alpha1.ColocationPolicy,
	pools []v1alpha1.WorkerPool, pods []corev1.Pod,
) *inventory {
	r := &inventory{
		nodes: nodes, reports: map[string]*v1alpha1.NodeReport{}, policies: policies, pools: pools, pods: pods,
		home: v1alpha1.Namespace,
	}
	for i := range reports {
		r.reports[reports[i].Name] = &reports[i]
	}
	return r
}

// clusterStatus is the cluster on one screen.
type clusterStatus struct {
	Nodes  int          `json:"nodes"`
	States []stateCount `json:"states"` // the most frequent first
	// Uncounted nodes are withdrawn or silent: the sums are those of the others.
	Uncounted    int               `json:"uncounted,omitempty"`
	CPU          totals            `json:"cpu"`
	Memory       totals            `json:"memory"`
	ThrottledCPU resource.Quantity `json:"throttledCPU"`
	Policies     []policyStatus    `json:"policies"`
	Pools        []poolStatus      `json:"pools,omitempty"`
	Troubles     []trouble         `json:"troubles,omitempty"`
	Each         []nodeStatus      `json:"each"` // ordered by name
}

type stateCount struct {
	State string `json:"state"`
	Nodes int    `json:"nodes"`
}

// totals are sums over NodeReports, with their names and units.
type totals struct {
	Capacity  resource.Quantity       `json:"capacity"`
	Online    resource.Quantity       `json:"online"`
	Batch     resource.Quantity       `json:"batch"` // agents of earlier versions do not report it
	Allowance resource.Quantity       `json:"allowance"`
	Offer     v1alpha1.TierQuantities `json:"offer"`
	Bound     v1alpha1.TierQuantities `json:"bound"`
}

func (t *totals) amounts() []*resource.Quantity {
	return []*resource.Quantity{
		&t.Capacity, &t.Online, &t.Batch, &t.Allowance, &t.Offer.Mid, &t.Offer.Batch, &t.Bound.Mid, &t.Bound.Batch,
	}
}

func (t *totals) add(r *v1alpha1.ResourceReport) {
	if r == nil {
		return
	}
	t.plus(&totals{
		Capacity: r.Capacity, Online: r.Online, Batch: *cmp.Or(r.Batch, &resource.Quantity{}), Allowance: r.Allowance,
		Offer: r.Offer, Bound: r.Bound,
	})
}

func (t *totals) plus(u *totals) {
	other := u.amounts()
	for i, amount := range t.amounts() {
		amount.Add(*other[i])
	}
}

func sum(t *v1alpha1.TierQuantities) *resource.Quantity {
	all := t.Mid.DeepCopy()
	all.Add(t.Batch)
	return &all
}

// cells returns the amounts as a table has them; dashes if nothing was reported.
func (t *totals) cells(text func(*resource.Quantity) string) string {
	if t.Capacity.IsZero() {
		return "-\t-\t-\t-\t-\t-"
	}
	var all []string
	for _, q := range []*resource.Quantity{&t.Capacity, &t.Online, &t.Batch, &t.Allowance, sum(&t.Offer), sum(&t.Bound)} {
		all = append(all, text(q))
	}
	return strings.Join(all, "\t")
}

func inCores(q *resource.Quantity) string { return cores(q.MilliValue()) }
func inGiB(q *resource.Quantity) string   { return gib(q.Value()) }

type policyStatus struct {
	Name    string              `json:"name"`
	Mode    string              `json:"mode"`
	Paused  bool                `json:"paused,omitempty"`
	Selling string              `json:"selling,omitempty"`
	Nodes   v1alpha1.NodeCounts `json:"nodes"`
	Ready   string              `json:"ready"`
}

type poolStatus struct {
	Name    string `json:"name"` // with its namespace
	Engine  string `json:"engine"`
	Wanted  int32  `json:"wanted"`
	Active  int32  `json:"active"`
	Leaving int32  `json:"leaving"`
	Ready   string `json:"ready"`
}

// trouble is something that is not as it should be.
type trouble struct {
	What string `json:"what"`
	Fix  string `json:"fix"`
}

// nodeStatus is a node as its report has it.
type nodeStatus struct {
	Name   string `json:"name"`
	Policy string `json:"policy,omitempty"` // that governs it
	State  string `json:"state"`
	Detail string `json:"detail,omitempty"`
	CPU    totals `json:"cpu"`
	Memory totals `json:"memory"`
	// ThrottledCPU is absent where the report does not have it.
	ThrottledCPU *resource.Quantity `json:"throttledCPU,omitempty"`
	Changed      time.Time          `json:"changed,omitzero"` // the report
}

// each returns the state of each node, ordered by name.
func (r *inventory) each() []nodeStatus {
	var valid []model.ClusterPolicy
	generations := map[string]int64{}
	for i := range r.policies {
		if p, err := kube.Policy(&r.policies[i]); err == nil {
			valid = append(valid, p)
			generations[p.Name] = r.policies[i].Generation
		}
	}
	var all []nodeStatus
	for _, n := range r.nodes {
		report := r.reports[n.Name]
		s := nodeStatus{Name: n.Name}
		choice := policy.Choose(policyNode(&n), valid)
		if s.Policy = choice.Policy.Name; s.Policy != "" {
			s.State, s.Detail = follows(s.Policy, generations[s.Policy], report)
			s.State, _, _ = strings.Cut(s.State, ":")
		} else {
			why := map[string]string{v1alpha1.LabelOptOut: "opted out", v1alpha1.AnnotationPause: "paused"}
			s.State = cmp.Or(why[choice.Reason.Text], "no policy")
		}
		if report != nil {
			s.CPU.add(report.Status.CPU)
			s.Memory.add(report.Status.Memory)
			s.ThrottledCPU = report.Status.ThrottledCPU
			if s.State == "withdrawn" {
				s.CPU.Offer, s.Memory.Offer = s.CPU.Bound, s.Memory.Bound // nothing new is sold
			}
			if report.Status.Changed != nil {
				s.Changed = report.Status.Changed.Time
			}
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b nodeStatus) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// status sums the inventory up.
func (r *inventory) status(now time.Time) *clusterStatus {
	s := &clusterStatus{Nodes: len(r.nodes), Each: r.each()}
	states := map[string]int{}
	for _, n := range s.Each {
		states[n.State]++
		if n.State == "withdrawn" || silent(r.reports[n.Name], now) {
			s.Uncounted++ // what it used last is not what is used now
			continue
		}
		s.CPU.plus(&n.CPU)
		s.Memory.plus(&n.Memory)
		if n.ThrottledCPU != nil {
			s.ThrottledCPU.Add(*n.ThrottledCPU)
		}
	}
	for state, nodes := range states {
		s.States = append(s.States, stateCount{state, nodes})
	}
	slices.SortFunc(s.States, func(a, b stateCount) int {
		return cmp.Or(cmp.Compare(b.Nodes, a.Nodes), strings.Compare(a.State, b.State))
	})
	for _, o := range r.policies {
		p := policyStatus{Name: o.Name, Mode: specMode(&o), Paused: kube.Paused(&o), Nodes: o.Status.Nodes,
			Ready: readiness(o.Status.Conditions)}
		if parsed, err := kube.Policy(&o); err == nil {
			p.Selling = string(policy.At(&parsed, now).Selling)
		}
		s.Policies = append(s.Policies, p)
	}
	for _, p := range r.pools {
		s.Pools = append(s.Pools, poolStatus{
			Name: p.Namespace + "/" + p.Name, Engine: engineOf(&p), Wanted: p.Status.Wanted, Active: p.Status.Active,
			Leaving: p.Status.Leaving, Ready: readiness(p.Status.Conditions),
		})
	}
	s.Troubles = r.troubles(s.Each, now)
	return s
}

// readiness returns True, False with the reason, or Unknown.
func readiness(conditions []metav1.Condition) string {
	c := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady)
	switch {
	case c == nil:
		return "Unknown"
	case c.Status == metav1.ConditionTrue:
		return "True"
	}
	return string(c.Status) + ", " + c.Reason
}

func (s *clusterStatus) print(out io.Writer, each bool) error {
	var states []string
	for _, c := range s.States {
		states = append(states, fmt.Sprintf("%d %s", c.Nodes, c.State))
	}
	fmt.Fprintf(out, "%s: %s", count(s.Nodes, "node"), cmp.Or(strings.Join(states, ", "), "none"))
	if s.Uncounted > 0 {
		fmt.Fprintf(out, "; not in the sums: %d withdrawn or silent", s.Uncounted)
	}
	fmt.Fprint(out, "\n\n")
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "\tcapacity\tonline use\tbatch use\tbatch may use\toffered\tsold\tthrottled now\t")
	fmt.Fprintf(t, "CPU\t%s\t%s\t\nmemory\t%s\t-\t\n", s.CPU.cells(inCores), throttledCell(&s.CPU, &s.ThrottledCPU),
		s.Memory.cells(inGiB))
	if err := t.Flush(); err != nil {
		return err
	}
	err := table(out, "\nPOLICY\tMODE\tSELLING\tSELECTED\tGOVERNED\tENFORCING\tOFFERING\tREADY", s.Policies,
		func(p *policyStatus) string {
			return fmt.Sprintf("%s\t%s\t%s\t%d\t%d\t%d\t%d\t%s", p.Name, modeOf(p.Mode, p.Paused), orDash(p.Selling),
				p.Nodes.Selected, p.Nodes.Governed, p.Nodes.Enforcing, p.Nodes.Offering, p.Ready)
		})
	if len(s.Policies) == 0 {
		fmt.Fprintln(out, "none: Waterline observes, and writes nothing")
	}
	if err == nil && len(s.Pools) > 0 {
		err = table(out, "\nPOOL\tENGINE\tWANTED\tACTIVE\tLEAVING\tREADY", s.Pools, func(p *poolStatus) string {
			return fmt.Sprintf("%s\t%s\t%d\t%d\t%d\t%s", p.Name, p.Engine, p.Wanted, p.Active, p.Leaving, p.Ready)
		})
	}
	if err == nil && each {
		err = table(out, "\nNODE\tPOLICY\tSTATE\tCPUS\tONLINE\tBATCH\tBATCH MAY USE\tOFFERED\tSOLD\tTHROTTLED\tMEMORY\t"+
			"ONLINE\tBATCH\tBATCH MAY USE\tOFFERED\tSOLD\tDETAIL", s.Each, func(n *nodeStatus) string {
			return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s\t%s", n.Name, orDash(n.Policy), n.State, n.CPU.cells(inCores),
				throttledCell(&n.CPU, n.ThrottledCPU), n.Memory.cells(inGiB), n.Detail)
		})
	}
	if err != nil {
		return err
	}
	return printTroubles(out, s.Troubles)
}

// throttledCell writes the throttled CPU of a node, or of all; a dash if it was not reported.
func throttledCell(of *totals, q *resource.Quantity) string {
	if q == nil || of.Capacity.IsZero() {
		return "-"
	}
	return inCores(q)
}

func printTroubles(out io.Writer, all []trouble) error {
	if len(all) == 0 {
		_, err := fmt.Fprintln(out, "\nno troubles")
		return err
	}
	fmt.Fprintf(out, "\n%s\n", count(len(all), "trouble"))
	for _, t := range all {
		fmt.Fprint(out, wrap("  ", "    ", t.What))
		fmt.Fprint(out, wrap("    what to do: ", "      ", t.Fix))
	}
	return nil
}

// some names up to three, ordered, and counts the others.
func some(names []string) string {
	slices.Sort(names)
	return first(names, 3)
}

// first names the first ones, up to a number, and counts the others.
func first(names []string, limit int) string {
	if more := len(names) - limit; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:limit], ", "), more)
	}
	return strings.Join(names, ", ")
}

// inOrder calls f for each entry of a map, ordered by key.
func inOrder[V any](all map[string]V, f func(key string, value V)) {
	for _, key := range slices.Sorted(maps.Keys(all)) {
		f(key, all[key])
	}
}
