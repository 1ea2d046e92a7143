package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/waterline-io/waterline/internal/progress"
	"github.com/waterline-io/waterline/internal/report"
	"github.com/waterline-io/waterline/internal/report/chart"
	"github.com/waterline-io/waterline/internal/sim/trace"
	"github.com/waterline-io/waterline/lab/dataset"
	"github.com/waterline-io/waterline/lab/workers"
)

// poolRun is what a simulation of pools is asked for.
type poolRun struct {
	root, dataset string
	nodes         int
	options       workers.Options
	policies      []string
	out           output
	found         []string // about the traces
}

func poolCommand() *cobra.Command {
	run := poolRun{options: workers.Defaults()}
	cmd := &cobra.Command{
		Use:     "pool",
		Short:   "Simulate a day of a worker pool under several policies",
		Long:    poolHelp(),
		Example: "  out/bin/lab pool --trace traces --dataset cloudcluster --json pool.json --svg pool.svg",
		Args: func(cmd *cobra.Command, args []string) error {
			if err := noArguments(cmd, args); err != nil {
				return err
			}
			return run.check()
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return run.out.show(cmd, func(show func(progress.Step)) (report.Result, error) {
				results, err := run.simulate(cmd.Context(), func(policy string) {
					show(progress.Step{Experiment: cmd.Name(), Doing: policy})
				})
				if err != nil {
					return report.Result{}, err
				}
				return run.report(results), nil
			})
		},
	}
	flags, o := cmd.Flags(), &run.options
	flags.StringVar(&run.root, "trace", "", "directory of the traces (default: generated usage)")
	flags.StringVar(&run.dataset, "dataset", "cloudcluster", "data set of the nodes' online usage")
	flags.IntVar(&run.nodes, "nodes", 24, "number of nodes; each has another day of a machine of the data set")
	flags.IntVar(&o.Day, "day", o.Day, "first simulated day of a machine; the days before it teach the predictor")
	flags.Int64Var(&o.Cores, "cores", o.Cores, "CPUs of a node")
	flags.Int64Var(&o.Memory, "memory", o.Memory, "memory of a node in MiB")
	flags.Float64Var(&o.Load, "load", o.Load, "CPU that the jobs need, as a share of all nodes'")
	flags.Uint64Var(&o.Seed, "seed", o.Seed, "seed of everything that is random")
	flags.StringSliceVar(&run.policies, "policy", nil, "simulate these policies only (default: all)")
	run.out.flags(cmd)
	return cmd
}

func poolHelp() string {
	var b strings.Builder
	b.WriteString(`Simulate a day of a cluster whose nodes run online services as a trace says, and workers of YARN on the rest.

The predictor, the slack and the steps of the pool are Waterline's own. The ResourceManager, its jobs, the memory of
online services and their usage within a minute are models; the output says how. The policies:
`)
	for _, p := range workers.Policies() {
		fmt.Fprintf(&b, "  %-15s %s\n", p.Name, p.About)
	}
	b.WriteString(`
Online services are short of CPU while they use more than containers leave them: then containers get less than they were
promised. The same of memory is worse, because only a killed process gives memory back.
`)
	return b.String()
}

// check returns an error that says which flag is wrong.
func (r *poolRun) check() error {
	if _, found := dataset.Find(r.dataset); r.root != "" && !found {
		return usageError{fmt.Errorf("--dataset %q: there are %s", r.dataset, strings.Join(dataset.Names(), ", "))}
	}
	for _, name := range r.policies {
		if _, found := workers.Find(name); !found {
			var names []string
			for _, p := range workers.Policies() {
				names = append(names, p.Name)
			}
			return usageError{fmt.Errorf("--policy %q: there are %s", name, strings.Join(names, ", "))}
		}
	}
	o := &r.options
	switch {
	case r.nodes < 1 || r.nodes > 1000:
		return usageError{fmt.Errorf("--nodes %d: write a number from 1 to 1000", r.nodes)}
	case o.Day < 1:
		return usageError{fmt.Errorf("--day %d: the first day is 1", o.Day)}
	case o.Cores < 4 || o.Cores > 1024:
		return usageError{fmt.Errorf("--cores %d: write a number from 4 to 1024", o.Cores)}
	case o.Memory < 16<<10 || o.Memory > 16<<20:
		return usageError{fmt.Errorf("--memory %d: write a number of MiB from 16384 to 16777216", o.Memory)}
	case !(o.Load > 0 && o.Load <= 10):
		return usageError{fmt.Errorf("--load %g: write a number above 0, and 10 at most", o.Load)}
	}
	return nil
}

// machines returns a machine for each node. Where the data set has fewer, the same machine counts again, with its days
// moved by one.
func (r *poolRun) machines() ([]dataset.Machine, error) {
	if r.root == "" {
		var all []dataset.Machine
		for i := range r.nodes {
			all = append(all, dataset.Generate(trace.Online(r.options.Day), uint64(i)))
		}
		return all, nil
	}
	all, notes, err := dataset.ReadAll(r.root, r.dataset)
	r.found = notes
	if err != nil {
		return nil, err
	}
	return workers.Spread(all, r.nodes, r.options.Day)
}

// simulate runs all policies, two at a time.
func (r *poolRun) simulate(ctx context.Context, progress func(doing string)) ([]workers.Result, error) {
	machines, err := r.machines()
	if err != nil {
		return nil, err
	}
	r.options.Machines = machines
	policies := workers.Policies()
	if len(r.policies) > 0 {
		policies = nil
		for _, name := range r.policies {
			p, _ := workers.Find(name)
			policies = append(policies, p)
		}
	}
	results, errs := make([]workers.Result, len(policies)), make([]error, len(policies))
	var runs errgroup.Group
	runs.SetLimit(2)
	for i, p := range policies {
		progress(p.Name)
		runs.Go(func() error {
			results[i], errs[i] = workers.Run(ctx, r.options, p)
			return nil // the others go on
		})
	}
	_ = runs.Wait()
	return results, errors.Join(errs...)
}

// report presents the results.
func (r *poolRun) report(results []workers.Result) report.Result {
	o := &r.options
	from := "generated usage"
	if r.root != "" {
		from = r.dataset
	}
	all := report.Begin("pool", fmt.Sprintf("a day of %d nodes of %d CPUs and %d GiB, online usage by %s", r.nodes,
		o.Cores, o.Memory>>10, from))
	all.Machine = "simulated; the figures do not depend on it"
	all.Metrics = workers.Metrics(results)
	all.Metrics["nodes"] = float64(r.nodes)
	all.Table.Head = []string{
		"policy", "CPU %", "batch core-h", "killed", "per core-h", "lost core-h", "pushbacks", "without kill %",
		"NMs started", "resizes/NM-h", "short s/node-h", "memory short s/node-h", "served %",
	}
	picture := chart.Stages{
		Title: "A simulated cluster, stage by stage", Names: [2]string{"online", "batch"}, Unit: "s",
		Desc:    "CPU of the cluster in the course of a day, with online services alone and with each way to run workers.",
		Caption: "seconds in an hour of a node in which online services used more CPU than containers left them",
	}
	for i := range results {
		s := &results[i]
		all.Table.Rows = append(all.Table.Rows, []string{
			s.Policy.Name, number(s.CPUPercent, 1), number(s.Goodput, 0), strconv.Itoa(s.Killed),
			number(s.KilledPerCoreHour(), 2), number(s.Lost/3600, 1), strconv.Itoa(s.Pushbacks),
			number(100*(1-s.ForcedShare()), 1), strconv.Itoa(s.Starts), number(s.ResizesPerHour(), 2), number(s.Short, 1),
			number(s.ShortMemory, 1), number(s.Served, 1),
		})
		all.Series[s.Policy.Name+"_online_percent"], all.Series[s.Policy.Name+"_batch_percent"] = s.Online, s.Batch
		all.Series[s.Policy.Name+"_short_seconds_per_node_hour"] = s.Shorts
		if !s.Policy.Compared {
			picture.Stages = append(picture.Stages,
				chart.Stage{Name: s.Policy.Name, Lower: s.Online, Upper: s.Batch, Below: s.Shorts})
		}
	}
	all.Chart = picture
	all.Notes = []string{
		fmt.Sprintf("Assumed: usage varies by %.0f %% within a value of the trace, every ten seconds; online memory is "+
			"%.0f %% of the node, and %.0f %% more at full CPU.", 100*o.Noise, 100*o.MemoryBase, 100*o.MemoryRise),
		fmt.Sprintf("Jobs need %.0f %% of all CPUs, in containers of %s for %s in the median. The waterline is %d %%.",
			100*o.Load, o.Container, o.Median.Round(time.Second), o.Waterline/10),
	}
	all.Notes = append(all.Notes, r.found...)
	return all
}

// number formats a figure of the table.
func number(v float64, digits int) string { return strconv.FormatFloat(v, 'f', digits, 64) }
