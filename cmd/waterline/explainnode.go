package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/waterline-io/waterline/internal/agent/serve"
	"github.com/waterline-io/waterline/internal/model"
)

// explainNode queries an agent about its node's CPU and memory, and shows the answer.
func explainNode(ctx context.Context, out io.Writer, address, name, output string) error {
	var e serve.NodeExplanation
	if err := getFromAgent(ctx, address, "/node", nil, &e); err != nil {
		return err
	}
	if output == "json" {
		return printJSON(out, e)
	}
	return printNode(out, name, &e)
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
	line := func(what, cpu, memory string) { fmt.Fprintf(t, "%s\t%s\t%s\t\n", pad(what), cpu, memory) }
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
	for _, tier := range []model.Tier{model.TierMid, model.TierBatch} {
		of := func(a *model.TierAmounts) int64 {
			if tier == model.TierMid {
				return a.Mid
			}
			return a.Batch
		}
		both(fmt.Sprintf("%s: could be sold", tier), func(a *model.Account) int64 { return of(&a.Room) })
		both("  is sold", func(a *model.Account) int64 { return of(&a.Offer) })
		both("  is bound", func(a *model.Account) int64 { return of(&a.Bound) })
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("writing the table: %w", err)
	}
	if s := e.Suppress; s != nil {
		fmt.Fprintf(out, "\nbatch may use %s CPU%s, by %s: %s\n", cores(s.Milli), onCPUs(s.CPUs), e.SuppressionMethod,
			s.Reason)
		if r := &s.Reaction; r.At != 0 {
			fmt.Fprintf(out, "it was last given less from %s to %s, while it used %s; relief expected %s, observed %s\n",
				cores(r.From), cores(r.To), cores(r.Used), cores(r.Expected), observed(r))
		}
	}
	for _, w := range e.Waiting {
		fmt.Fprintf(out, "\n%s\n", w)
	}
	for _, l := range e.Leaving {
		fmt.Fprintf(out, "\n%s\n", l)
	}
	for _, why := range e.Unsupported {
		fmt.Fprintf(out, "\nthe kernel lacks what the policy asks for: %s\n", why)
	}
	for _, why := range e.Services {
		fmt.Fprintf(out, "\nthe figure of a service is not known: %s\n", why)
	}
	for i, a := range []*model.Account{cpu, memory} {
		fmt.Fprintf(out, "\n%s, measured %.1f s ago: %s\n", []string{"CPU", "memory"}[i], a.Use.Age.Seconds(), a.Reason)
	}
	return nil
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

// pad keeps the first column aligned to the left in a table that aligns to the right.
func pad(what string) string { return fmt.Sprintf("%-38s", what) }

func cores(milli int64) string { return fmt.Sprintf("%.2f", float64(milli)/1000) }

func gib(bytes int64) string { return fmt.Sprintf("%.2f GiB", float64(bytes)/(1<<30)) }

func thousandths(part int64) string { return fmt.Sprintf("%g %%", float64(part)/10) }

// missed describes how good past predictions were.
func missed(p *model.Peak) string {
	switch {
	case !p.Known && p.Checked == 0:
		return "not known yet"
	case p.Checked == 0:
		return "none checked"
	}
	return thousandths(p.Missed)
}
