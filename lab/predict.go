package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/progress"
	"github.com/waterline-io/waterline/internal/report"
	"github.com/waterline-io/waterline/lab/dataset"
	"github.com/waterline-io/waterline/lab/measure"
	"github.com/waterline-io/waterline/lab/peaks"
)

func predictCommand() *cobra.Command {
	var root, jsonFile string
	var datasets []string
	cmd := &cobra.Command{
		Use:   "predict",
		Short: "Score the peak predictor and published ones, on traces",
		Long: `Score the peak predictor and published ones on the recorded usage of real machines.

At each step a predictor knows the past and predicts the peak usage of the next hour, or of the next day. Usage above
the prediction is a violation. The rest of the machine's capacity could be sold: the savings. Values are means over five
minutes. Predictors are scored every 15 or 30 minutes, after two days without scores. Savings compare only at equal
violations, so the frontier is shown as well: the scores of Waterline's predictor with other targets than the default.

` + dataset.Describe(),
		Example: "  out/bin/lab predict --trace traces --dataset alibaba2018 --json predict.json",
		Args: func(cmd *cobra.Command, args []string) error {
			if err := noArguments(cmd, args); err != nil {
				return err
			}
			if root == "" {
				return usageError{errors.New("name the directory of the traces with --trace")}
			}
			for _, name := range datasets {
				if _, found := dataset.Find(name); !found {
					return usageError{fmt.Errorf("--dataset %q: there are %s", name, strings.Join(dataset.Names(), ", "))}
				}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			line := progress.NewLine(cmd.ErrOrStderr())
			results, err := peaks.Run(cmd.Context(), root, datasets, func(file string) {
				line.Show(progress.Step{Experiment: cmd.Name(), Doing: filepath.Base(file)})
			})
			line.End()
			if err != nil {
				return fmt.Errorf("scoring predictors: %w", err)
			}
			r := report.Begin(cmd.Name(), cmd.Short)
			r.Machine = fmt.Sprintf("%d CPUs, %s; the figures do not depend on it", runtime.NumCPU(), runtime.GOARCH)
			r.Metrics, r.Series = peaks.Metrics(results), peaks.Frontiers(results)
			if err := r.Save(jsonFile, "", report.BuiltFrom(commit)); err != nil {
				return err
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

func printPredictors(w io.Writer, results []peaks.Result) {
	const note = "Violations are lower bounds: means of five minutes hide shorter peaks."
	for i := range results {
		r := &results[i]
		ahead := "the next hour"
		if r.Horizon == model.Day {
			ahead = "the next day"
		}
		fmt.Fprintf(w, "%s, %s; machines: %d, predictions: %d\n(%s)\n\n", r.Dataset, ahead, r.Machines,
			r.Waterline().Times, r.About)
		scores := report.Table{Head: []string{"predictor", "violations", "shortfall", "savings"}}
		for _, s := range r.Scores {
			scores.Rows = append(scores.Rows, []string{
				s.Name, measure.Percent(s.Violations()), measure.Percent(s.MeanShortfall()), measure.Percent(s.Savings()),
			})
		}
		frontier := report.Table{Head: []string{"Waterline, by target", "violations", "savings"}}
		for _, p := range r.Frontier {
			frontier.Rows = append(frontier.Rows, []string{
				measure.Percent(p.Target), measure.Percent(p.Score.Violations()), measure.Percent(p.Score.Savings()),
			})
		}
		fmt.Fprintf(w, "%s\n%s\n", scores, frontier)
	}
	fmt.Fprintln(w, note)
}
