package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/waterline-io/waterline/internal/decide/cluster/rebalance"
)

func rebalanceCommand() *cobra.Command {
	r := rebalanceRun{cluster: reach{timeout: 30 * time.Second}, settings: rebalance.DefaultSettings()}
	var dryRun bool
	s := &r.settings
	c := &cobra.Command{
		Use:   "rebalance",
		Short: "Find online pods that should move, so that hot nodes cool and weights spread",
		Long: `Find online pods that should leave their nodes. A node is hot while its online pods and its system use more CPU
than the waterline, or are predicted to within an hour; and where many pods with weights are, a weight buys less CPU.

Nothing is changed without --execute. With it, the pods are evicted through the Eviction API, one after another: the
next one only when the replacement of the last one is ready. It stops at the first move that makes something worse than
planned, or whose replacement is not ready in time.

A pod without a controller never leaves, nor the only ready pod of its owner, nor one whose PodDisruptionBudget has no
room, nor one that fits nowhere else. Nodes whose reports are missing or old take no part. docs/rebalance.md explains
each reason.

It runs anywhere, and needs the rights to list nodes, pods, namespaces, poddisruptionbudgets, nodereports and
colocationpolicies; --execute also needs to create pods/eviction.`,
		Example: `  waterline rebalance
  waterline rebalance --max-moves 3 --max-age 1h -o json
  waterline rebalance --execute --timeout 10m`,
		Args: func(c *cobra.Command, args []string) (err error) {
			switch {
			case len(args) > 0:
				err = fmt.Errorf("rebalance takes no arguments, but got %q", args[0])
			case c.Flags().Changed("execute") && c.Flags().Changed("dry-run") && r.execute == dryRun:
				err = errors.New("--dry-run and --execute exclude each other: write one of them")
			case s.Margin < 1 || s.Margin > 500:
				err = fmt.Errorf("--margin %d: write a number from 1 to 500, in thousandths", s.Margin)
			case s.All < 1 || s.PerNode < 1 || s.PerOwner < 1:
				err = errors.New("--max-moves, --per-node and --per-owner must be at least 1")
			case s.MinAge < 0 || s.MaxAge <= 0 || r.wait <= 0:
				err = errors.New("--min-age, --max-age and --timeout must be positive, such as 10m")
			}
			return usageError(err)
		},
		RunE: func(c *cobra.Command, _ []string) error {
			r.execute = r.execute || c.Flags().Changed("dry-run") && !dryRun
			return r.run(c.Context(), c.OutOrStdout())
		},
	}
	f := c.Flags()
	f.BoolVar(&dryRun, "dry-run", true, "only show the moves")
	f.BoolVar(&r.execute, "execute", false, "evict the pods")
	f.IntVar(&s.All, "max-moves", s.All, "maximum number of moves")
	f.IntVar(&s.PerNode, "per-node", s.PerNode, "maximum number of moves from one node, and to one node")
	f.IntVar(&s.PerOwner, "per-owner", s.PerOwner, "maximum number of moves of one workload")
	f.DurationVar(&s.MinAge, "min-age", s.MinAge, "minimum age of a pod that moves")
	f.DurationVar(&s.MaxAge, "max-age", s.MaxAge, "maximum age of a NodeReport; nodes with older ones take no part")
	f.Int64Var(&s.Margin, "margin", s.Margin,
		"least gain of a move, in thousandths of the node's CPUs or of the mean weight pressure")
	f.BoolVar(&r.localData, "evict-local-data", false, "also move pods with data on their node (emptyDir, hostPath)")
	f.DurationVar(&r.wait, "timeout", 5*time.Minute, "how long a replacement may take to be ready")
	r.output.flag(c)
	r.cluster.flags(c)
	return c
}

// rebalanceRun is what a rebalance is asked for.
type rebalanceRun struct {
	cluster   reach
	output    output
	execute   bool
	localData bool
	wait      time.Duration
	settings  rebalance.Settings
}

// rebalanceReport is what the command prints as JSON or YAML.
type rebalanceReport struct {
	Executed bool           `json:"executed"`
	Plan     rebalance.Plan `json:"plan"`
	Done     []doneMove     `json:"done,omitempty"`
	Stopped  string         `json:"stopped,omitempty"` // why not all moves were carried out
}

// run plans, prints the plan, and carries it out with --execute.
func (r *rebalanceRun) run(ctx context.Context, out io.Writer) error {
	a, err := r.cluster.connect()
	if err != nil {
		return err
	}
	facts, err := readCluster(ctx, a)
	if err != nil {
		return err
	}
	facts.localData = r.localData
	in := facts.input(r.settings)
	report := rebalanceReport{Executed: r.execute, Plan: rebalance.Decide(in)}
	if !r.output.data() {
		if err := printPlan(out, &report.Plan); err != nil {
			return err
		}
	}
	if r.execute {
		m := mover{core: a.core, wait: r.wait, every: time.Second, say: func(format string, args ...any) {
			if !r.output.data() {
				fmt.Fprintf(out, format+"\n", args...)
			}
		}}
		report.Done, err = m.carryOut(ctx, in)
		if err != nil {
			report.Stopped = err.Error()
		}
	} else if !r.output.data() && len(report.Plan.Moves) > 0 {
		fmt.Fprintln(out, "\nNothing was changed. With --execute these pods are evicted, one after another.")
	}
	if r.output.data() {
		err = errors.Join(r.output.print(out, report, nil), err)
	}
	return err
}

// printPlan prints the nodes and the moves as tables.
func printPlan(out io.Writer, p *rebalance.Plan) error {
	err := table(out, "NODE\tCPUS\tWATERLINE\tLOAD\tWEIGHT PRESSURE\t", p.Nodes, func(n *rebalance.Outcome) string {
		if n.Absent != "" {
			return fmt.Sprintf("%s\t\t\t\t\ttakes no part: %s", n.Name, n.Absent)
		}
		return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s", n.Name, cores(n.CPU), cores(n.Ceiling),
			change(n.Before.Load, n.After.Load), change(n.Before.Pressure, n.After.Pressure), stays(n))
	})
	if err != nil {
		return fmt.Errorf("writing the table: %w", err)
	}
	if len(p.Moves) == 0 {
		_, err := fmt.Fprintln(out, "\nNo pod should move.")
		return err
	}
	return table(out, "\nPOD\tFROM\tTO\tWHY\tCPU\tWEIGHT\tFROM: LOAD\tTO: LOAD\tFROM: WEIGHT PRESSURE\t"+
		"TO: WEIGHT PRESSURE", p.Moves, func(m *rebalance.Move) string {
		return fmt.Sprintf("%s/%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s", m.Namespace, m.Name, m.From, m.To, m.Reason,
			cores(m.Estimate), m.Weight, change(m.FromBefore.Load, m.FromAfter.Load), change(m.ToBefore.Load, m.ToAfter.Load),
			change(m.FromBefore.Pressure, m.FromAfter.Pressure), change(m.ToBefore.Pressure, m.ToAfter.Pressure))
	})
}

// change prints an amount before and after, both in thousandths.
func change(before, after int64) string {
	if before == after {
		return cores(before)
	}
	return cores(before) + " → " + cores(after)
}

// stays describes why a node stays hot.
func stays(n *rebalance.Outcome) string {
	if n.After.Load <= n.Ceiling {
		return ""
	}
	var all []string
	for _, code := range slices.Sorted(maps.Keys(n.Stay)) {
		all = append(all, fmt.Sprintf("%d %s", n.Stay[code], code))
	}
	if len(all) == 0 {
		return "stays hot: it has no pods"
	}
	return "stays hot; pods that stay: " + strings.Join(all, ", ")
}
