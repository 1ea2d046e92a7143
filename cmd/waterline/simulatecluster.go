package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/kube"
	"github.com/waterline-io/waterline/internal/progress"
	"github.com/waterline-io/waterline/internal/report"
	"github.com/waterline-io/waterline/internal/report/chart"
	"github.com/waterline-io/waterline/internal/sim/cluster"
	"github.com/waterline-io/waterline/internal/sim/recorded"
	"github.com/waterline-io/waterline/internal/sim/trace"
)

// The heap may grow to four times what is in use, because decisions make much garbage, but to no more than a limit that
// leaves room in 2 GiB. A cluster that needs more has half of that in addition.
const (
	gcPercent   = 300
	memoryLimit = 1700 << 20
)

// limitMemory sets the limits, when all that stays in memory has been read.
func limitMemory() {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	debug.SetMemoryLimit(max(memoryLimit, int64(m.HeapAlloc)*3/2))
}

// clusterRun is what a simulation of a cluster is asked for.
type clusterRun struct {
	recorded        recordedRun
	crew            crewRun
	recording       *recorded.Recording
	options         cluster.Options
	schedulers      []string
	policy, compare string // files
	jsonFile        string
	svgFile         string
	htmlFile        string
}

type clusterDay struct {
	name string // before the names of its figures
	text string // in tables
	cluster.Result
}

func simulateClusterCommand() *cobra.Command {
	run := clusterRun{options: cluster.Defaults()}
	run.options.Parallel = runtime.NumCPU()
	cmd := &cobra.Command{
		Use:   "cluster",
		Short: "Simulate a day of a cluster under a policy and a scheduler",
		Long: `Simulate a day of a cluster whose online pods use what Prometheus recorded. Batch pods run on what they leave.

Each node decides as an agent does, the scheduler scores as Waterline's plugins or as the stock scheduler do, and
evictions pass the manager's budgets. docs/simulate.md lists the assumptions, and what means of minutes cannot show.

Without --from-prometheus, usage is generated.`,
		Example: "  waterline simulate cluster --from-prometheus http://prometheus:9090 --policy policy.yaml " +
			"--html report.html\n" +
			"  waterline simulate cluster --scheduler stock,waterline --json cluster.json",
		Args: func(cmd *cobra.Command, args []string) error {
			if err := noArguments(cmd, args); err != nil {
				return err
			}
			return run.check(cmd.Flags().Changed)
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return run.show(cmd) },
	}
	run.flags(cmd.Flags())
	return cmd
}

// show simulates, and presents the result in the files that were named and on the terminal.
func (r *clusterRun) show(cmd *cobra.Command) error {
	debug.SetGCPercent(gcPercent)
	debug.SetMemoryLimit(memoryLimit)
	line, begin := progress.NewLine(cmd.ErrOrStderr()), time.Now()
	days, err := r.simulate(cmd.Context(), line)
	line.End()
	if err != nil {
		return err
	}
	result := r.report(days)
	if err := result.Save(r.jsonFile, r.svgFile, builtFrom()); err != nil {
		return err
	}
	if r.htmlFile != "" {
		if err := r.page(&result, days, time.Since(begin)).Write(r.htmlFile); err != nil {
			return err
		}
	}
	result.Print(cmd.OutOrStdout())
	return nil
}

func (r *clusterRun) flags(flags *pflag.FlagSet) {
	o := &r.options
	r.recorded.flags(flags)
	r.crew.flags(flags)
	flags.StringVar(&r.policy, "policy", "", "file with the ColocationPolicy of all nodes (default: docs/simulate.md)")
	flags.StringVar(&r.compare, "compare", "", "file with a second policy, under which the same day is simulated too")
	flags.StringSliceVar(&r.schedulers, "scheduler", []string{string(cluster.Waterline)},
		"simulate the day with each of these schedulers: stock, waterline")
	flags.IntVar(&o.Nodes, "nodes", o.Nodes, "number of nodes")
	flags.Int64Var(&o.Cores, "cores", o.Cores, "CPUs of a node")
	flags.Int64Var(&o.Memory, "memory", o.Memory, "memory of a node in MiB")
	flags.IntVar(&o.Pods, "pods", o.Pods, "online pods for each node")
	flags.Float64Var(&o.Online, "online", o.Online, "CPU that online pods use in the mean, as a share of all nodes'")
	flags.Float64Var(&o.Requested, "requested", o.Requested,
		"CPU and memory that online pods request, as a share of all nodes'")
	flags.Float64Var(&o.Weighted, "weighted", o.Weighted, "share of online pods that have a weight")
	flags.DurationVar(&o.Lifetime, "lifetime", o.Lifetime, "mean time until an online pod is started anew; 0: never")
	flags.Float64Var(&o.Load, "load", o.Load, "CPU that the jobs need, as a share of all nodes'")
	flags.Uint64Var(&o.Seed, "seed", o.Seed, "seed of everything that is random")
	flags.StringVar(&r.jsonFile, "json", "", "write the figures into this file")
	flags.StringVar(&r.svgFile, "svg", "", "write the chart into this file")
	flags.StringVar(&r.htmlFile, "html", "", "write a report with charts into this file")
}

// check returns an error that says which flag is wrong. changed reports whether a flag was given.
func (r *clusterRun) check(changed func(flag string) bool) error {
	if err := cmp.Or(r.recorded.check(changed), r.crew.check(changed)); err != nil {
		return err
	}
	if r.crew.file != "" && !changed("load") {
		r.options.Load = 0
	}
	if r.recorded.from != "" && !changed("weighted") {
		r.options.Weighted = 0 // Prometheus knows of none
	}
	for _, s := range r.schedulers {
		if s := cluster.Scheduler(s); s != cluster.Stock && s != cluster.Waterline {
			return usageError(fmt.Errorf("--scheduler %q: there are %s and %s", s, cluster.Stock, cluster.Waterline))
		}
	}
	o := &r.options
	part := func(v float64) bool { return v > 0 && v <= 1 }
	switch {
	case len(r.schedulers) == 0:
		return usageError(errors.New("--scheduler names none"))
	case r.compare != "" && r.policy == "":
		return usageError(errors.New("--compare needs --policy: the two policies are compared"))
	case o.Nodes < 1 || o.Nodes > 20000:
		return usageError(fmt.Errorf("--nodes %d: write a number from 1 to 20000", o.Nodes))
	case o.Pods < 1 || o.Pods > 250:
		return usageError(fmt.Errorf("--pods %d: write a number from 1 to 250", o.Pods))
	case o.Cores < 2 || o.Cores > 1024:
		return usageError(fmt.Errorf("--cores %d: write a number from 2 to 1024", o.Cores))
	case o.Memory < 4<<10 || o.Memory > 16<<20:
		return usageError(fmt.Errorf("--memory %d: write a number of MiB from 4096 to 16777216", o.Memory))
	case !part(o.Online):
		return usageError(fmt.Errorf("--online %g: write a number above 0, and 1 at most", o.Online))
	case !part(o.Requested):
		return usageError(fmt.Errorf("--requested %g: write a number above 0, and 1 at most", o.Requested))
	case o.Weighted != 0 && !part(o.Weighted):
		return usageError(fmt.Errorf("--weighted %g: write a number from 0 to 1", o.Weighted))
	case o.Lifetime != 0 && o.Lifetime < time.Minute:
		return usageError(fmt.Errorf("--lifetime %s: write 1m at least, or 0", o.Lifetime))
	case !(o.Load >= 0 && o.Load <= 10):
		return usageError(fmt.Errorf("--load %g: write a number from 0 to 10", o.Load))
	}
	return nil
}

func (r *clusterRun) policies() ([]model.ClusterPolicy, error) {
	if r.policy == "" {
		return []model.ClusterPolicy{cluster.DefaultPolicy()}, nil
	}
	var all []model.ClusterPolicy
	for _, file := range []string{r.policy, r.compare} {
		if file == "" {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("reading a policy: %w", err)
		}
		p, err := kube.ParsePolicy(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if p.Policy.Mode == model.ModeDisabled {
			return nil, fmt.Errorf("%s: mode Disabled decides nothing; write Enforce", file)
		}
		all = append(all, p)
	}
	return all, nil
}

// read reads what online pods use.
func (r *clusterRun) read(ctx context.Context, line *progress.Line) (err error) {
	if r.options.Pool, err = r.crew.read(); err != nil {
		return err
	}
	if r.recorded.from == "" {
		r.options.Use = generated()
		return nil
	}
	if r.recording, err = r.recorded.read(ctx, line); err != nil {
		return err
	}
	r.options = r.recording.Options(r.options)
	limitMemory()
	return nil
}

// generated returns made-up usage of machines with online services.
func generated() []trace.Grid {
	const machines, days = 200, 4
	var all []trace.Grid
	for i := range machines {
		all = append(all, trace.GenerateGrid(fmt.Sprintf("generated%d", i), trace.Online(days), uint64(i)))
	}
	return all
}

// simulate simulates the day under each policy and with each scheduler.
func (r *clusterRun) simulate(ctx context.Context, line *progress.Line) ([]clusterDay, error) {
	policies, err := r.policies()
	if err != nil {
		return nil, err
	}
	if err := r.read(ctx, line); err != nil {
		return nil, err
	}
	var days []clusterDay
	for i, p := range policies {
		for _, s := range r.schedulers {
			d := clusterDay{name: s, text: s}
			if len(policies) > 1 {
				d.text = p.Name + ", " + s
			}
			if i > 0 {
				d.name = "compare_" + s
			}
			o := r.options
			o.Policy, o.Scheduler = p, cluster.Scheduler(s)
			begin := time.Now()
			o.Progress = func(passed, all time.Duration) {
				took := time.Since(begin)
				line.Show(progress.Step{
					Experiment: "cluster", Doing: "simulating a day, " + d.text, Elapsed: took,
					Total: time.Duration(float64(took) * float64(all) / float64(passed)),
				})
			}
			if d.Result, err = cluster.Run(ctx, o); err != nil {
				return nil, err
			}
			days = append(days, d)
		}
	}
	return days, nil
}

func (r *clusterRun) about() string {
	if r.recording != nil {
		return "a day of " + r.recording.About()
	}
	o := &r.options
	return fmt.Sprintf("a day of %d nodes of %d CPUs and %d GiB with %d online pods each, generated usage", o.Nodes,
		o.Cores, o.Memory>>10, o.Pods)
}

func (r *clusterRun) report(days []clusterDay) report.Result {
	o := &r.options
	all := report.Begin("cluster", r.about())
	all.Machine = "simulated; the figures do not depend on it"
	all.Table.Head = []string{
		"scheduler", "CPU before %", "CPU after %", "batch core-h", "served %", "violations min", "above line min",
		"evicted", "std.dev. %", "highest %", "weights met %", "writes/s",
	}
	if o.Pool != nil {
		all.Table.Head = append(all.Table.Head, crewHead()...)
	}
	if r.compare != "" {
		all.Table.Head[0] = "policy, scheduler"
	}
	picture := chart.Stages{
		Title: "A simulated cluster", Names: [2]string{"online", "batch"}, Unit: "min",
		Desc:    "CPU of the cluster in the course of a day, and violations.",
		Caption: "minutes in an hour of a node in which online pods used more than batch pods' requests left of it",
	}
	all.Metrics["nodes"] = float64(o.Nodes)
	for i := range days {
		d := &days[i]
		all.Table.Rows = append(all.Table.Rows, []string{
			d.text, number(d.OnlinePercent, 1), number(d.CPUPercent, 1), number(d.BatchHours, 0), number(d.Served, 1),
			number(d.Short, 1), number(d.OnlineAbove, 1), strconv.Itoa(d.Evicted), number(d.OnlineSpread, 2),
			number(d.Highest, 1), number(d.WeightsMet, 1), number(d.NodeWrites+d.ReportWrites, 2),
		})
		for name, v := range d.Metrics() {
			all.Metrics[d.name+"_"+name] = v
		}
		for name, v := range d.Hours.Series() {
			all.Series[d.name+"_"+name] = v
		}
		if d.Pool != nil {
			all.Table.Rows[i] = append(all.Table.Rows[i], crewRow(d)...)
		}
		picture.Stages = append(picture.Stages, chart.Stage{
			Name: d.text, Lower: d.Hours.Online, Upper: d.Hours.Batch, Below: d.Hours.Short,
		})
	}
	all.Chart = picture
	all.Notes = r.notes(&days[0].Result)
	return all
}

// notes say what a reader must know to judge the figures.
func (r *clusterRun) notes(first *cluster.Result) []string {
	notes := []string{
		"Violations: minutes of a node and day in which online pods used more than the requests of batch pods left of " +
			"the node. Above line: minutes in which online pods alone used more than the waterline.",
		r.online(first),
		r.jobs(),
		"Values are means of a minute or more: shorter peaks, and how long pods wait for CPUs, are not in them.",
	}
	if r.recording != nil {
		notes = append(notes, r.recording.Notes...)
	}
	if first.Unplaced > 0 {
		notes = append(notes, fmt.Sprintf("%d of %d online pods found no node with room for their requests and were "+
			"left out.", first.Unplaced, first.Pods))
	}
	return notes
}

func (r *clusterRun) jobs() string {
	o := &r.options
	text := fmt.Sprintf("Jobs need %.0f %% of all CPUs, in pods of %d CPUs and %d GiB that run for %s in the median.",
		100*o.Load, o.Batch.CPU/1000, o.Batch.Memory>>30, o.Median)
	if p := o.Pool; p != nil {
		text += fmt.Sprintf(" Those of the pool need %.0f %%, in containers of %s for %s in the median.", 100*p.Load,
			p.Container, p.Median)
	}
	return text
}

func (r *clusterRun) online(first *cluster.Result) string {
	o := &r.options
	if o.Services != nil {
		return fmt.Sprintf("Online pods use and request what was recorded; %d days before taught the predictors. The "+
			"scheduler places them anew. %.0f %% of them have a weight.", first.History, 100*o.Weighted)
	}
	return fmt.Sprintf("Online pods follow %d machines and days; %d days before taught the predictors. They "+
		"request %.0f %% of the nodes, all the same share of their size; %.0f %% of them have a weight.", first.Services,
		first.History, 100*o.Requested, 100*o.Weighted)
}
