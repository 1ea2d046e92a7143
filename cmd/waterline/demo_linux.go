package main

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/waterline-io/waterline/internal/progress"
	"github.com/waterline-io/waterline/internal/report"
	"github.com/waterline-io/waterline/lab/experiment"
	"github.com/waterline-io/waterline/lab/sandbox"
)

// onNode lists the commands that work on a node's kernel.
func onNode() []*cobra.Command {
	return []*cobra.Command{demoCommand(), restoreCommand(), helperCommand()}
}

// demoExperiments lists the experiments that the demo runs, in order.
func demoExperiments() []string { return []string{"fill", "weights", "preempt", "drift"} }

func demoCommand() *cobra.Command {
	var cfg experiment.Config
	var out string
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show in under two minutes what Waterline does, on this machine and without a cluster",
		Long: `Show in under two minutes what Waterline does, on this machine and without a cluster: four experiments with the real agent
and real load, then their tables and a report to open in a browser. It needs root, takes most of the CPU meanwhile, and
leaves nothing behind.`,
		Example: "  sudo waterline demo --out /tmp/demo",
		Args: refusing("demo takes no arguments, but got %q; the lab, a command in the source tree, runs single " +
			"experiments: see \"out/bin/lab --help\" after \"make build\""),
		RunE: func(cmd *cobra.Command, _ []string) error { return demo(cmd, cfg, out) },
	}
	cmd.Flags().StringVar(&out, "out", "out/demo", "directory for the report")
	cmd.Flags().BoolVar(&cfg.Hog, "hog", false, "let one more pod, annotated 262144, burn all CPUs meanwhile")
	cfg.Flags(cmd.Flags())
	return cmd
}

// helperCommand is how the demo starts load and outside readers; see [sandbox.RunHelper].
func helperCommand() *cobra.Command {
	return &cobra.Command{
		Use:                sandbox.HelperCommand,
		Hidden:             true,
		DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			return sandbox.RunHelper(args, experiment.Helpers())
		},
	}
}

func demo(cmd *cobra.Command, cfg experiment.Config, out string) error {
	start := time.Now()
	if err := sandbox.Check(cfg.CgroupRoot); err != nil {
		return err
	}
	line := progress.NewLine(cmd.ErrOrStderr())
	cfg.Progress = line.Show
	page := report.Page{
		Title: "Waterline on this machine", Commit: builtFrom(),
		Lead: "One annotation gives a pod its weight: how much CPU it wins while CPU is short. These experiments ran the " +
			"real agent and real load on this machine's kernel, in cgroups laid out as a kubelet lays them out, and " +
			"measured the result.",
		Closing: "Theory is arithmetic on the weights that the kernel held: at each level of the hierarchy, siblings " +
			"that want CPU get it in proportion to their weights. All cgroups and processes were removed again.",
		Again: []report.Again{
			{What: "To repeat all", Command: "waterline demo"},
			{What: "To repeat one in the source tree, and keep its figures", Command: "out/bin/lab NAME --json FILE"},
		},
	}
	for _, name := range demoExperiments() {
		e, found := experiment.Find(name)
		if !found {
			return fmt.Errorf("the demo has no experiment %q", name)
		}
		result, err := e.Run(cmd.Context(), cfg)
		line.End()
		if err != nil {
			return fmt.Errorf("experiment %s: %w", name, err)
		}
		page.Results = append(page.Results, result)
	}
	page.Took = time.Since(start)
	file, err := filepath.Abs(filepath.Join(out, "index.html"))
	if err != nil {
		return fmt.Errorf("finding the directory for the report: %w", err)
	}
	if err := page.Write(file); err != nil {
		return err
	}
	w := cmd.OutOrStdout()
	fmt.Fprintf(w, "%s\n\n", page.Results[0].Machine)
	for i := range page.Results {
		page.Results[i].Print(w)
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "The report: %s\n", file)
	return nil
}
