package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/waterline-io/waterline/internal/observe/kube"
	"github.com/waterline-io/waterline/internal/progress"
	"github.com/waterline-io/waterline/internal/report"
	"github.com/waterline-io/waterline/internal/report/chart"
	"github.com/waterline-io/waterline/internal/sim/cluster"
	"github.com/waterline-io/waterline/internal/sim/trace"
	"github.com/waterline-io/waterline/lab/dataset"
)

// clusterRun is what a simulation of a cluster on a trace is asked for.
type clusterRun struct {
	root, dataset string
	policyFile    string
	schedulers    []string
	options       cluster.Options
	out           output
	found         []string // about the traces
}

func newClusterRun() clusterRun {
	r := clusterRun{options: cluster.Defaults()}
	r.options.Parallel = runtime.NumCPU()
	return r
}

func clusterCommand() *cobra.Command {
	run := newClusterRun()
	cmd := &cobra.Command{
		Use:   "cluster",
		Short: "Simulate a day of a cluster on a trace, with each scheduler",
		Long: `Simulate a day of a cluster whose online pods use what a published trace says. "waterline simulate cluster" does the
same on the usage of your own nodes; docs/simulate.md lists the assumptions.

` + dataset.Describe(),
		Example: "  out/bin/lab cluster --trace traces --dataset bitbrains --scheduler stock,waterline --json cluster.json",
		Args: func(cmd *cobra.Command, args []string) error {
			return errors.Join(noArguments(cmd, args), run.check())
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return run.out.show(cmd, func(show func(progress.Step)) (report.Result, error) {
				return run.compare(cmd.Context(), show)
			})
		},
	}
	run.flags(cmd.Flags())
	cmd.Flags().StringSliceVar(&run.schedulers, "scheduler", []string{string(cluster.Waterline)},
		"simulate the day with each of these schedulers: stock, waterline")
	run.out.flags(cmd)
	return cmd
}

// flags adds the flags that simulations of a cluster share.
func (r *clusterRun) flags(flags *pflag.FlagSet) {
	o := &r.options
	flags.StringVar(&r.root, "trace", "", "directory of the traces")
	flags.StringVar(&r.dataset, "dataset", "bitbrains", "data set of the online pods' usage")
	flags.StringVar(&r.policyFile, "policy", "", "file with the ColocationPolicy of all nodes (default: docs/simulate.md)")
	flags.IntVar(&o.Nodes, "nodes", o.Nodes, "number of nodes")
	flags.IntVar(&o.Pods, "pods", o.Pods, "online pods for each node")
	flags.DurationVar(&o.Lifetime, "lifetime", o.Lifetime, "mean time until an online pod is started anew; 0: never")
	flags.Float64Var(&o.Load, "load", o.Load, "CPU that the jobs need, as a share of all nodes'")
	flags.Uint64Var(&o.Seed, "seed", o.Seed, "seed of everything that is random")
}

// check returns an error that says which flag is wrong.
func (r *clusterRun) check() error {
	if r.root == "" {
		return usageError{errors.New("name the directory of the traces with --trace")}
	}
	if _, found := dataset.Find(r.dataset); !found {
		return usageError{fmt.Errorf("--dataset %q: there are %s", r.dataset, strings.Join(dataset.Names(), ", "))}
	}
	for _, s := range r.schedulers {
		if s := cluster.Scheduler(s); s != cluster.Stock && s != cluster.Waterline {
			return usageError{fmt.Errorf("--scheduler %q: there are %s and %s", s, cluster.Stock, cluster.Waterline)}
		}
	}
	return errors.Join(inRange("nodes", r.options.Nodes, 1, 20000), inRange("pods", r.options.Pods, 1, 250))
}

// read reads the policy and the trace.
func (r *clusterRun) read() (err error) {
	r.options.Policy = cluster.DefaultPolicy()
	if r.policyFile != "" {
		text, err := os.ReadFile(r.policyFile)
		if err != nil {
			return fmt.Errorf("reading a policy: %w", err)
		}
		if r.options.Policy, err = kube.ParsePolicy(text); err != nil {
			return fmt.Errorf("%s: %w", r.policyFile, err)
		}
	}
	r.options.Use, err = r.use()
	return err
}

// use returns what online pods use.
func (r *clusterRun) use() ([]trace.Grid, error) {
	machines, notes, err := dataset.ReadAll(r.root, r.dataset)
	r.found = notes
	if err != nil {
		return nil, err
	}
	var all []trace.Grid
	for i := range machines {
		all = append(all, machines[i].Grids()...)
	}
	d, _ := dataset.Find(r.dataset)
	if len(all) == 0 {
		return nil, fmt.Errorf("the traces of %s in %s have no whole day: nine in ten five-minute steps from 00:00 to "+
			"24:00 need a value. Used are %s", r.dataset, r.root, d.About)
	}
	if err := r.judge(all); err != nil {
		return nil, err
	}
	if d.Mixed { // all are equally large
		for i := range all {
			all[i].Limit = 1
		}
	}
	return r.taught(all), nil
}

// taught leaves out what has one day alone, if there is something else: a day before it teaches the predictors.
func (r *clusterRun) taught(all []trace.Grid) []trace.Grid {
	longer := slices.DeleteFunc(slices.Clone(all), func(g trace.Grid) bool { return len(g.Days) < 2 })
	if len(longer) == 0 || len(longer) == len(all) {
		return all
	}
	r.found = append(r.found, fmt.Sprintf("%d of %d machines or parts were left out: they have one day, and the "+
		"predictors learn from the days before.", len(all)-len(longer), len(all)))
	return longer
}

// judge notes what is odd about the use, and returns an error if its unit must be another one.
func (r *clusterRun) judge(all []trace.Grid) error {
	holes, left, over, values, most := 0, 0, 0, 0, 0.0
	var worst *trace.Grid
	for i := range all {
		g := &all[i]
		holes, left, over = holes+g.Holes, left+g.Left, over+g.Over
		for _, day := range g.Days {
			values += len(day)
			most = max(most, float64(slices.Max(day)))
		}
		if worst == nil || g.Over > worst.Over {
			worst = g
		}
	}
	if over*100 > values {
		return fmt.Errorf("%d of %d values are above the limit, most of them of %s, whose limit is %g: the use must be in "+
			"the unit of the limit", over, values, worst.Name, worst.Limit)
	}
	if over > 0 {
		r.found = append(r.found, fmt.Sprintf("%d values of %d were above their limit and count as the limit, most of "+
			"them of %s.", over, values, worst.Name))
	}
	if most <= 0.011 {
		r.found = append(r.found, fmt.Sprintf("The highest use is %.2g %% of its limit: if the trace has shares from 0 to "+
			"1 where percent are due, multiply them by 100.", 100*most))
	}
	if holes > 0 {
		r.found = append(r.found, fmt.Sprintf("%d values of %d were missing; each repeats the value before "+
			"it.", holes, values))
	}
	if left > 0 {
		r.found = append(r.found, fmt.Sprintf("%d days of machines were left out: less than nine in ten of their "+
			"five-minute steps have a value.", left))
	}
	return nil
}

// compare simulates the day with each scheduler.
func (r *clusterRun) compare(ctx context.Context, show func(progress.Step)) (report.Result, error) {
	if err := r.read(); err != nil {
		return report.Result{}, err
	}
	all := report.Begin("cluster", r.about())
	all.Machine = "simulated; the figures do not depend on it"
	all.Table.Head = []string{
		"scheduler", "CPU before %", "CPU after %", "batch core-h", "served %", "violations min", "above line min",
		"evicted", "std.dev. %", "highest %", "weights met %", "writes/s",
	}
	picture := chart.Stages{
		Title: "A simulated cluster", Names: [2]string{"online", "batch"}, Unit: "min",
		Desc:    "CPU of the cluster in the course of a day, and violations.",
		Caption: "minutes in an hour of a node in which online pods used more than batch pods' requests left of it",
	}
	all.Metrics["nodes"] = float64(r.options.Nodes)
	for i, s := range r.schedulers {
		o, begin := r.options, time.Now()
		o.Scheduler = cluster.Scheduler(s)
		o.Progress = func(passed, whole time.Duration) {
			took := time.Since(begin)
			show(progress.Step{
				Experiment: "cluster", Doing: "simulating a day, " + s, Elapsed: took,
				Total: time.Duration(float64(took) * float64(whole) / float64(passed)),
			})
		}
		d, err := cluster.Run(ctx, o)
		if err != nil {
			return report.Result{}, err
		}
		all.Table.Rows = append(all.Table.Rows, []string{
			s, number(d.OnlinePercent, 1), number(d.CPUPercent, 1), number(d.BatchHours, 0), number(d.Served, 1),
			number(d.Short, 1), number(d.OnlineAbove, 1), strconv.Itoa(d.Evicted), number(d.OnlineSpread, 2),
			number(d.Highest, 1), number(d.WeightsMet, 1), number(d.NodeWrites+d.ReportWrites, 2),
		})
		for name, v := range d.Metrics() {
			all.Metrics[s+"_"+name] = v
		}
		for name, v := range d.Hours.Series() {
			all.Series[s+"_"+name] = v
		}
		picture.Stages = append(picture.Stages, chart.Stage{
			Name: s, Lower: d.Hours.Online, Upper: d.Hours.Batch, Below: d.Hours.Short,
		})
		if i == 0 {
			all.Notes = r.notes(&d)
		}
	}
	all.Chart = picture
	return all, nil
}

// about says what is simulated.
func (r *clusterRun) about() string {
	o := &r.options
	return fmt.Sprintf("a day of %d nodes of %d CPUs and %d GiB with %d online pods each, usage by %s", o.Nodes, o.Cores,
		o.Memory>>10, o.Pods, r.dataset)
}

// notes say what a reader must know to judge the figures.
func (r *clusterRun) notes(first *cluster.Result) []string {
	notes := []string{
		"Violations: minutes of a node and day in which online pods used more than the requests of batch pods left of " +
			"the node. Above line: minutes in which online pods alone used more than the waterline.",
		fmt.Sprintf("Online pods follow %d parts and days of the trace; %d days before taught the predictors.",
			first.Services, first.History),
	}
	return append(notes, r.found...)
}
