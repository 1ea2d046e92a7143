package main

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/waterline-io/waterline/internal/experiment"
)

func suppressCommand() *cobra.Command {
	var cfg experiment.SuppressConfig
	var jsonFile, svgFile string
	cmd := &cobra.Command{
		Use:   experiment.SuppressName,
		Short: "A step in online load: how soon batch makes room, and has it back",
		Long: experiment.SuppressAbout + `

The online pod does nothing, then wants half of the machine for some seconds, then does nothing again. A process outside of
the pods sees when
  batch may use only what is left, by its quota and its CPUs
  batch uses no more than that
  batch may again use what it might before
and how much less than in the end it might use meanwhile. After each step batch is left alone for twice as long as it had less,
because the agent takes load that comes again sooner for one that swings, and then gives batch more only after a longer time.

It needs root and no cluster. It takes all of the machine's CPU meanwhile, for about forty minutes. On a machine that does
something else, that takes from what batch may use, and the figures say little.`,
		Example: "  sudo waterline experiment suppress --steps 10 --by cpuset --json suppress.json",
		Args: func(cmd *cobra.Command, args []string) error {
			switch methods := []string{"cpuset", "quota", "both"}; {
			case len(args) > 0:
				return usageError{fmt.Errorf("suppress takes no arguments, but got %q", args[0])}
			case cfg.Seconds < 2 || cfg.Seconds > maxSeconds:
				return usageError{fmt.Errorf("--seconds %d: write a number from 2 to %d", cfg.Seconds, maxSeconds)}
			case cfg.Steps < 1 || cfg.Steps > maxSteps:
				return usageError{fmt.Errorf("--steps %d: write a number from 1 to %d", cfg.Steps, maxSteps)}
			case !slices.Contains(methods, cfg.By):
				return usageError{fmt.Errorf("--by %q: write cpuset, quota or both", cfg.By)}
			case cfg.Policy != "" && cmd.Flags().Changed("by"):
				return usageError{fmt.Errorf("--by and --policy both say how batch is suppressed")}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return show(cmd, experiment.SuppressName, jsonFile, svgFile, func(progress func(experiment.Progress)) (experiment.Result, error) {
				cfg.Progress = progress
				return experiment.Suppress(cmd.Context(), cfg)
			})
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&cfg.Steps, "steps", experiment.SuppressSteps, "how many steps")
	flags.IntVar(&cfg.Seconds, "seconds", experiment.SuppressSeconds, "how long each is")
	flags.StringVar(&cfg.By, "by", experiment.SuppressBy, "what keeps batch to what is left: cpuset, quota or both")
	flags.StringVar(&cfg.Policy, "policy", "", "file with a ColocationPolicy (default: waterline 100 %, suppression what --by says)")
	resultFlags(cmd, &jsonFile, &svgFile)
	hostFlags(cmd, &cfg.Config)
	return cmd
}

// maxSteps is the most steps that suppress may be asked for: more than a day of them.
const maxSteps = 10_000
