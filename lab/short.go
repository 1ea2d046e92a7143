package main

import (
	"cmp"

	"github.com/spf13/cobra"

	"github.com/waterline-io/waterline/internal/progress"
	"github.com/waterline-io/waterline/internal/report"
	"github.com/waterline-io/waterline/lab/experiment"
)

// shortCommands returns a command for each experiment of package experiment.
func shortCommands() []*cobra.Command {
	var all []*cobra.Command
	for _, e := range experiment.All() {
		all = append(all, shortCommand(e))
	}
	return all
}

func shortCommand(e experiment.Experiment) *cobra.Command {
	var cfg experiment.Config
	var out output
	cmd := &cobra.Command{
		Use:   e.Name,
		Short: e.About,
		Long: e.About + `

It needs root and no cluster: it makes its own cgroups in the kubelet's layout, runs the real agent and load in them,
and removes them.`,
		Example: "  sudo out/bin/lab " + e.Name + " --json " + e.Name + ".json --svg " + e.Name + ".svg",
		Args: func(cmd *cobra.Command, args []string) error {
			return cmp.Or(noArguments(cmd, args), inRange("seconds", cfg.Seconds, 1, maxSeconds))
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return out.show(cmd, func(show func(progress.Step)) (report.Result, error) {
				cfg.Progress = show
				return e.Run(cmd.Context(), cfg)
			})
		},
	}
	cmd.Flags().IntVar(&cfg.Seconds, "seconds", e.Seconds, "how long to measure; if there are several modes, each of them")
	if e.Hog {
		cmd.Flags().BoolVar(&cfg.Hog, "hog", false, "let one more pod, annotated 262144, burn all CPUs meanwhile")
	}
	out.flags(cmd)
	cfg.Flags(cmd.Flags())
	return cmd
}
