package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/agent/serve"
	"github.com/waterline-io/waterline/internal/decide/policy"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

type nodeAnswer struct {
	serve.NodeExplanation            // by its agent or a journal
	Name                  string     `json:"name,omitempty"`
	Cluster               *nodeFacts `json:"cluster,omitempty"`
	Journal               *record    `json:"journal,omitempty"`

	unasked bool // the agent gave no answer
}

// nodeFacts is what the cluster knows of a node.
type nodeFacts struct {
	Policy     string   `json:"policy,omitempty"` // that governs it; "": none
	Why        string   `json:"why"`
	Others     []string `json:"others,omitempty"`     // why other policies do not govern it
	Selling    string   `json:"selling,omitempty"`    // why nothing is sold at this time of the day; "": no such reason
	Report     string   `json:"report,omitempty"`     // why its report should not be trusted, or does not exist
	Conditions []string `json:"conditions,omitempty"` // of its report
	Unknown    []string `json:"unknown,omitempty"`    // what could not be read
}

// nodeAnswer explains a node by its agent and the cluster. Without a name it is the only node that has an agent.
func (e *explainer) nodeAnswer(ctx context.Context, a *apis, name string) (answer, error) {
	n := &nodeAnswer{Name: name}
	address := e.address
	if a != nil {
		var err error
		if name == "" {
			if n.Name, err = findNode(ctx, a, "", ""); err != nil {
				return nil, err
			}
		}
		if n.Cluster, err = readNodeFacts(ctx, a, n.Name, time.Now()); err != nil {
			return nil, err
		}
		forwarded, stop, err := forwardToNode(ctx, a, n.Name, agentPort)
		if n.unasked = err != nil; err != nil {
			return n, fmt.Errorf("what the node decided is not known: %w", err)
		}
		defer stop()
		address = forwarded
	}
	if e.at.IsZero() {
		err := getFromAgent(ctx, address, "/node", nil, &n.NodeExplanation)
		if n.unasked = err != nil; err != nil && n.Cluster == nil {
			return nil, err
		}
		return n, err
	}
	r := e.record("node", "")
	if err := r.fromAgent(ctx, address); err != nil {
		return nil, err
	}
	n.NodeExplanation, n.Journal = serve.RecordedNode(r.chosen), r
	return n, nil
}

func readNodeFacts(ctx context.Context, a *apis, name string, now time.Time) (*nodeFacts, error) {
	var node corev1.Node
	if err := a.core.Get().Resource("nodes").Name(name).Do(ctx).Into(&node); err != nil {
		return nil, fmt.Errorf("looking up the node: %w", err)
	}
	f := &nodeFacts{}
	var policies v1alpha1.ColocationPolicyList
	if err := list(ctx, a.custom, "colocationpolicies", "", &policies); err != nil {
		f.Unknown = append(f.Unknown, err.Error())
	} else {
		f.judge(&node, policies.Items, now)
	}
	var report v1alpha1.NodeReport
	switch err := a.custom.Get().Resource("nodereports").Name(name).Do(ctx).Into(&report); {
	case apierrors.IsNotFound(err):
		f.Report = "the node has no NodeReport: no agent has worked there"
	case err != nil:
		f.Unknown = append(f.Unknown, fmt.Sprintf("its NodeReport: %v", err))
	default:
		for _, c := range report.Status.Conditions {
			f.Conditions = append(f.Conditions, fmt.Sprintf("%s is %s since %s: %s %s", c.Type, c.Status,
				clock(c.LastTransitionTime.Time), c.Reason, c.Message))
		}
	}
	return f, nil
}

// judge decides which policy governs a node, and what it says now, as the agent does.
func (f *nodeFacts) judge(node *corev1.Node, objects []v1alpha1.ColocationPolicy, now time.Time) {
	var policies []model.ClusterPolicy
	for i := range objects {
		p, err := kube.Policy(&objects[i])
		if err != nil {
			f.Unknown = append(f.Unknown, fmt.Sprintf("%v; agents keep its last valid version", err))
			continue
		}
		policies = append(policies, p)
	}
	choice := policy.Choose(policyNode(node), policies)
	f.Policy, f.Why = choice.Policy.Name, choice.Reason.String()
	for _, o := range choice.Others {
		f.Others = append(f.Others, o.Name+": "+o.Reason.String())
	}
	if effect := policy.At(&choice.Policy, now); effect.Reason.Code != "" {
		f.Selling = effect.Reason.String()
	}
}

// policyNode is a Node as the choice of its policy needs it.
func policyNode(n *corev1.Node) policy.Node {
	info := kube.NodeOf(n)
	return policy.Node{UID: info.UID, Labels: info.Labels, OptedOut: kube.OptedOut(&info)}
}

func (n *nodeAnswer) meanings() meanings { return reasons() }

func (n *nodeAnswer) print(out io.Writer) error {
	if n.Journal != nil {
		n.Journal.print(out)
	}
	if !n.unasked {
		if err := printNode(out, n.Name, &n.NodeExplanation); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(out, "node %s\n", n.Name)
	}
	f := n.Cluster
	if f == nil {
		return nil
	}
	if f.Why != "" {
		fmt.Fprintf(out, "\ngoverned by %s: %s\n", cmp.Or(f.Policy, "no policy"), f.Why)
	}
	printEach(out, "  not by %s\n", f.Others)
	for _, line := range append([]string{f.Selling, f.Report}, f.Conditions...) {
		if line != "" {
			fmt.Fprintln(out, line)
		}
	}
	printEach(out, "not known: %s\n", f.Unknown)
	return nil
}

// printNode shows both accounts side by side, as sums that can be followed with a finger.
func printNode(out io.Writer, name string, e *serve.NodeExplanation) error {
	fmt.Fprintf(out, "%s  policy %s\n", strings.TrimSpace("node "+name), e.Mode)
	if e.Slack == nil {
		_, err := fmt.Fprintln(out, "nothing was measured yet")
		return err
	}
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	cpu, memory := &e.Slack.CPU, &e.Slack.Memory
	// The first column is padded: it is aligned to the left in a table that aligns to the right.
	line := func(what, cpu, memory string) { fmt.Fprintf(t, "%-38s\t%s\t%s\t\n", what, cpu, memory) }
	both := func(what string, of func(a *model.Account) int64) { line(what, cores(of(cpu)), gib(of(memory))) }
	line("", "CPU", "memory")
	both("capacity", func(a *model.Account) int64 { return a.Capacity })
	both(fmt.Sprintf("filled up to (%s, %s)", thousandths(e.CPU.Waterline), thousandths(e.Memory.Waterline)),
		func(a *model.Account) int64 { return a.Ceiling })
	both("- system, or what is reserved for it", func(a *model.Account) int64 { return max(a.Use.System, a.Reserved) })
	if cpu.Use.Stolen > 0 {
		line("  with what the hypervisor gave others", cores(cpu.Use.Stolen), "")
	}
	some := func(what string, of func(a *model.Account) int64) {
		if of(cpu)+of(memory) > 0 {
			both(what, of)
		}
	}
	some("- used by daemons, pods of class SYSTEM", func(a *model.Account) int64 { return a.Use.Daemons })
	both("- kept free by the kernel", func(a *model.Account) int64 { return a.Watermark })
	both("- used by online pods", func(a *model.Account) int64 { return a.Use.Online })
	both("- requests of those not measured yet", func(a *model.Account) int64 { return a.Use.Unmeasured })
	both("- idle, but a pod's alone", func(a *model.Account) int64 { return a.Use.IdleExclusive })
	some("- page cache protected for online pods", func(a *model.Account) int64 { return a.Use.Protected })
	both("= left for batch", func(a *model.Account) int64 { return a.Allow })
	some("  of that, of batch pods that did not buy it", func(a *model.Account) int64 { return a.Use.Unsold })
	both("  batch uses", func(a *model.Account) int64 { return a.Use.Batch })
	line("", "", "")
	for h, title := range []string{"1 hour", "24 hours"} {
		both("online peak within "+title, func(a *model.Account) int64 { return min(a.Peaks[h].Value, a.Capacity) })
		line("  past predictions exceeded", missed(&cpu.Peaks[h]), missed(&memory.Peaks[h]))
	}
	line("", "", "")
	sales := func(tier model.Tier, of func(a *model.TierAmounts) int64) {
		both(fmt.Sprintf("%s: could be sold", tier), func(a *model.Account) int64 { return of(&a.Room) })
		both("  is sold", func(a *model.Account) int64 { return of(&a.Offer) })
		both("  is bound", func(a *model.Account) int64 { return of(&a.Bound) })
	}
	sales(model.TierMid, func(a *model.TierAmounts) int64 { return a.Mid })
	sales(model.TierBatch, func(a *model.TierAmounts) int64 { return a.Batch })
	if err := t.Flush(); err != nil {
		return fmt.Errorf("writing the table: %w", err)
	}
	if s := e.Suppress; s != nil {
		fmt.Fprintf(out, "\nbatch may use %s CPU%s, by %s: %s\n", cores(s.Milli), onCPUs(s.CPUs), e.SuppressionMethod,
			s.Reason)
		if r := &s.Reaction; r.At != 0 {
			fmt.Fprintf(out, "last throttled from %s to %s CPUs while it used %s; expected to free %s, freed %s\n",
				cores(r.From), cores(r.To), cores(r.Used), cores(r.Expected), observed(r))
		}
	}
	printEach(out, "\n%s\n", e.Waiting)
	printEach(out, "\nthe node itself waits for CPUs: %s\n", e.Starved)
	printEach(out, "\n%s\n", e.Leaving)
	for _, why := range e.Unsupported {
		lead := "the kernel lacks what the policy asks for"
		switch why.Code {
		case model.PodsOutside, model.KubeletUnknown, model.NoPodCgroups:
			lead = "the node's setup has a fault"
		}
		fmt.Fprintf(out, "\n%s: %s\n", lead, why)
	}
	if len(e.Repairs) > 0 {
		fmt.Fprintf(out, "\nother programs overwrote files in the last %s, and each was repaired: %s\n",
			e.Age.Round(time.Second), repairs(e))
	}
	printEach(out, "\nanother program keeps overwriting %s: ForeignWriter\n", e.Fought)
	inOrder(e.Troubles, func(what, err string) {
		fmt.Fprintf(out, "\nthe agent fails, operation %s: %s\n", what, err)
	})
	printEach(out, "\nthe figure of a service: %s\n", e.Services)
	for i, a := range []*model.Account{cpu, memory} {
		fmt.Fprintf(out, "\n%s, measured %.1f s ago: %s\n", []string{"CPU", "memory"}[i], a.Use.Age.Seconds(), a.Reason)
	}
	return nil
}

func repairs(e *serve.NodeExplanation) string {
	var all []string
	inOrder(e.Repairs, func(knob string, times uint64) { all = append(all, fmt.Sprintf("%s %d times", knob, times)) })
	return strings.Join(all, ", ")
}

func onCPUs(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" on %d CPUs", n)
}

func observed(r *model.Reaction) string {
	if !r.Seen {
		return "not known yet"
	}
	return cores(r.Observed)
}

func cores(milli int64) string { return fmt.Sprintf("%.2f", float64(milli)/1000) }

func gib(bytes int64) string { return fmt.Sprintf("%.2f GiB", float64(bytes)/(1<<30)) }

func thousandths(part int64) string { return fmt.Sprintf("%g %%", float64(part)/10) }

// missed describes how good past predictions were.
func missed(p *model.Peak) string {
	switch {
	case p.Learning:
		return "less than a day measured"
	case !p.Known && p.Checked == 0:
		return "not known yet"
	case p.Checked == 0:
		return "none checked"
	}
	return thousandths(p.Missed)
}
