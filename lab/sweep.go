package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/progress"
	"github.com/waterline-io/waterline/internal/report"
	"github.com/waterline-io/waterline/internal/sim/cluster"
	"github.com/waterline-io/waterline/lab/chart"
)

// sweepRun is what a sweep is asked for.
type sweepRun struct {
	clusterRun
	waterlines []int // percent
	methods    []string
}

// sweepCurve is the days that differ in the waterline alone.
type sweepCurve struct {
	method string
	days   []cluster.Result
}

func sweepCommand() *cobra.Command {
	run := sweepRun{clusterRun: newClusterRun()}
	cmd := &cobra.Command{
		Use:   "sweep",
		Short: "Draw batch cores against violations, by waterline",
		Long: `Simulate the same day of a cluster with several waterlines for CPU, and with several methods of selling it.

Each waterline is a point: the CPU that batch used in the mean, and how long online pods used more than batch pods'
requests left of their node. A curve above another one is better: more batch for the same violations. All other fields
are those of the policy.
`,
		Example: "  out/bin/lab sweep --trace traces --dataset alibaba2018 --svg frontier.svg",
		Args: func(cmd *cobra.Command, args []string) error {
			return errors.Join(noArguments(cmd, args), run.check())
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return run.out.show(cmd, func(show func(progress.Step)) (report.Result, error) {
				curves, err := run.sweep(cmd.Context(), show)
				if err != nil {
					return report.Result{}, err
				}
				return run.report(curves), nil
			})
		},
	}
	flags := cmd.Flags()
	run.flags(flags)
	run.out.flags(cmd)
	flags.IntSliceVar(&run.waterlines, "waterline", []int{55, 65, 75, 85, 92, 100}, "waterlines for CPU, in percent")
	flags.StringSliceVar(&run.methods, "method", []string{string(model.SellRealtime), string(model.SellPredicted)},
		"methods of selling CPU: Realtime, Predicted")
	return cmd
}

// check returns an error that says which flag is wrong.
func (r *sweepRun) check() error {
	if len(r.waterlines) == 0 || len(r.methods) == 0 {
		return usageError{fmt.Errorf("--waterline and --method name %d and %d: write one of each at least",
			len(r.waterlines), len(r.methods))}
	}
	for i, w := range r.waterlines {
		if w < 1 || w > 100 || i > 0 && w <= r.waterlines[i-1] {
			return usageError{fmt.Errorf("--waterline %d: write percentages from 1 to 100, each above the one before", w)}
		}
	}
	for _, m := range r.methods {
		if m := model.SellMethod(m); m != model.SellRealtime && m != model.SellPredicted {
			return usageError{fmt.Errorf("--method %q: there are %s and %s", m, model.SellRealtime, model.SellPredicted)}
		}
	}
	return r.clusterRun.check()
}

// sweep simulates a day for each method and waterline.
func (r *sweepRun) sweep(ctx context.Context, show func(progress.Step)) ([]sweepCurve, error) {
	if err := r.read(); err != nil {
		return nil, err
	}
	var curves []sweepCurve
	begin, done, all := time.Now(), 0, len(r.methods)*len(r.waterlines)
	for _, method := range r.methods {
		c := sweepCurve{method: method}
		for _, w := range r.waterlines {
			o := r.options
			o.Policy.Policy.CPU.Method, o.Policy.Policy.CPU.Waterline = model.SellMethod(method), int64(w)*10
			step := progress.Step{Experiment: "sweep", Doing: fmt.Sprintf("%s, waterline %d %%", method, w)}
			if done > 0 {
				step.Elapsed = time.Since(begin)
				step.Total = step.Elapsed * time.Duration(all) / time.Duration(done)
			}
			show(step)
			day, err := cluster.Run(ctx, o)
			if err != nil {
				return nil, err
			}
			c.days = append(c.days, day)
			done++
		}
		curves = append(curves, c)
	}
	return curves, nil
}

// report presents the curves.
func (r *sweepRun) report(curves []sweepCurve) report.Result {
	all := report.Begin("sweep", "the same day with several waterlines: "+r.about())
	all.Machine = "simulated; the figures do not depend on it"
	all.Table.Head = []string{
		"method", "waterline %", "batch cores", "CPU %", "served %", "violations min", "violation core-h", "evicted",
	}
	picture := chart.Frontier{
		Title: "Batch against violations", Desc: "Batch cores against violations, for several waterlines.",
		Gain: "cores that batch used, in the mean", Cost: "violations: minutes of a node and day",
		CostsNothing: "no violations",
	}
	for i := range curves {
		c := &curves[i]
		name := strings.ToLower(c.method)
		curve := chart.Curve{Name: c.method, Strong: i == len(curves)-1}
		for k := range c.days {
			d, w := &c.days[k], r.waterlines[k]
			cores := d.BatchHours / 24
			curve.Points = append(curve.Points, chart.Point{Label: fmt.Sprintf("%d %%", w), Gain: cores, Cost: d.Short})
			all.Table.Rows = append(all.Table.Rows, []string{
				c.method, fmt.Sprint(w), number(cores, 0), number(d.CPUPercent, 1), number(d.Served, 1), number(d.Short, 2),
				number(d.ShortHours, 1), fmt.Sprint(d.Evicted),
			})
			for key, v := range map[string]float64{
				"waterline_percent": float64(w), "batch_cores": cores, "violation_minutes_per_node_day": d.Short,
				"violation_core_hours": d.ShortHours,
			} {
				all.Series[name+"_"+key] = append(all.Series[name+"_"+key], v)
			}
			for key, v := range d.Metrics() {
				all.Metrics[fmt.Sprintf("%s_%d_%s", name, w, key)] = v
			}
		}
		picture.Curves = append(picture.Curves, curve)
	}
	all.Chart = picture
	all.Notes = r.notes(&curves[0].days[0])
	return all
}
