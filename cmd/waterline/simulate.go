package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/progress"
	"github.com/waterline-io/waterline/internal/report"
	"github.com/waterline-io/waterline/internal/sim/trace"
	"github.com/waterline-io/waterline/lab/peaks"
)

func simulateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "simulate",
		Short: "Run Waterline's decisions on recorded usage",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError{fmt.Errorf("there is no simulation %q; there are predict, pool, cluster and sweep", args[0])}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(simulatePredictCommand(), simulatePoolCommand(), simulateClusterCommand(), simulateSweepCommand())
	return cmd
}

func simulatePredictCommand() *cobra.Command {
	var root, jsonFile string
	var datasets []string
	cmd := &cobra.Command{
		Use:     "predict",
		Short:   "Score the peak predictor and published ones",
		Long:    simulatePredictHelp(),
		Example: "  waterline simulate predict --trace traces --dataset alibaba2018 --json predict.json",
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) > 0:
				return usageError{fmt.Errorf("predict takes no arguments, but got %q", args[0])}
			case root == "":
				return usageError{errors.New("name the directory of the traces with --trace")}
			}
			for _, name := range datasets {
				if _, found := trace.Find(name); !found {
					return usageError{fmt.Errorf("--dataset %q: there are %s", name, strings.Join(datasetNames(), ", "))}
				}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			line := progress.NewLine(cmd.ErrOrStderr())
			results, err := peaks.Run(cmd.Context(), root, datasets, func(file string) {
				line.Show(progress.Step{Experiment: "predict", Doing: filepath.Base(file)})
			})
			line.End()
			if err != nil {
				return fmt.Errorf("simulating predictions: %w", err)
			}
			if jsonFile != "" {
				if err := writePredictJSON(jsonFile, results); err != nil {
					return err
				}
			}
			printPredictors(cmd.OutOrStdout(), results)
			return nil
		},
	}
	cmd.Flags().StringVar(&root, "trace", "", "directory of the traces")
	cmd.Flags().StringVar(&jsonFile, "json", "", "write the figures into this file")
	cmd.Flags().StringSliceVar(&datasets, "dataset", nil, "score these data sets only (default: all)")
	return cmd
}

func datasetNames() []string {
	var names []string
	for _, d := range trace.Datasets() {
		names = append(names, d.Name)
	}
	return names
}

func simulatePredictHelp() string {
	var b strings.Builder
	b.WriteString(`Score the peak predictor and published ones on the recorded usage of real machines.

At each step a predictor knows the past and predicts the peak usage of the next hour, or of the next day. Usage above
the prediction is a violation. The rest of the machine's capacity could be sold: the savings. Values are means over five
minutes. Predictors are scored every 15 or 30 minutes, after two days without scores. Savings compare only at equal
violations, so the frontier is shown as well: the scores of Waterline's predictor with other targets than the default.

The directory has one for each data set, with files of comma-separated values, packed by gzip or not, of any name:
`)
	for _, d := range trace.Datasets() {
		fmt.Fprintf(&b, "  %-13s %s/*.csv[.gz]: %s\n", d.Name, d.Dir, d.About)
	}
	return b.String()
}

// writePredictJSON writes the figures in the form that all figures of Waterline are kept in. Violations and savings are
// shares, from 0 to 1.
func writePredictJSON(file string, results []peaks.Result) error {
	r := report.Result{
		Name:    "predict",
		When:    time.Now().UTC().Truncate(time.Second),
		Machine: fmt.Sprintf("%d CPUs, %s; the figures do not depend on it", runtime.NumCPU(), runtime.GOARCH),
		Metrics: peaks.Metrics(results),
		Series:  peaks.Frontiers(results),
	}
	text, err := r.JSON(builtFrom())
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return fmt.Errorf("writing the figures: %w", err)
	}
	return nil
}

func printPredictors(w io.Writer, results []peaks.Result) {
	const note = "Violations are lower bounds: means of five minutes hide shorter peaks."
	for i := range results {
		r := &results[i]
		ahead := "the next hour"
		if r.Horizon == model.Day {
			ahead = "the next day"
		}
		fmt.Fprintf(w, "%s, %s: %s, %d predictions\n(%s)\n\n", r.Dataset, ahead, count(r.Machines, "machine"),
			r.Waterline().Times, r.About)
		scores := report.Table{Head: []string{"predictor", "violations", "shortfall", "savings"}}
		for _, s := range r.Scores {
			scores.Rows = append(scores.Rows, []string{
				s.Name, report.Percent(s.Violations()), report.Percent(s.MeanShortfall()), report.Percent(s.Savings()),
			})
		}
		frontier := report.Table{Head: []string{"Waterline, by target", "violations", "savings"}}
		for _, p := range r.Frontier {
			frontier.Rows = append(frontier.Rows, []string{
				report.Percent(p.Target), report.Percent(p.Score.Violations()), report.Percent(p.Score.Savings()),
			})
		}
		fmt.Fprintf(w, "%s\n%s\n", scores, frontier)
	}
	fmt.Fprintln(w, note)
}
