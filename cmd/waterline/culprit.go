package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/waterline-io/waterline/internal/experiment"
)

func culpritCommand() *cobra.Command {
	var cfg experiment.CulpritConfig
	var jsonFile, svgFile string
	cmd := &cobra.Command{
		Use:   experiment.CulpritName,
		Short: "A server and four batch pods, one of which is guilty: who is named, how soon, and what it helps",
		Long: experiment.CulpritAbout + `

The server is asked at random moments, whether or not it answers. In each run another pod begins to run on its CPU, and three
innocent ones, of which one is bigger, go on beside it; where nobody is guilty a process outside of all pods does the same. The
runs come in random order. It tells
  who was named, after how many seconds, with which score
  for how much of the time the server waits, and its p99, before that pod begins, until it is throttled, then, and afterwards
  what became of the trial, and whether the pod had all back when it was calm

It needs root, two CPUs, and no cluster, and takes five minutes a run. On a machine that does something else the server waits for
that, too.`,
		Example: "  sudo waterline experiment culprit --repeats 3 --nobody 1 --json interference.json",
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) > 0:
				return usageError{fmt.Errorf("culprit takes no arguments, but got %q", args[0])}
			case cfg.Seconds < 2 || cfg.Seconds > maxSeconds:
				return usageError{fmt.Errorf("--seconds %d: write a number from 2 to %d", cfg.Seconds, maxSeconds)}
			case cfg.Repeats < 1 || cfg.Repeats > maxRepeats:
				return usageError{fmt.Errorf("--repeats %d: write a number from 1 to %d", cfg.Repeats, maxRepeats)}
			case cfg.Nobody < 0 || cfg.Nobody > maxRepeats:
				return usageError{fmt.Errorf("--nobody %d: write a number from 0 to %d", cfg.Nobody, maxRepeats)}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return show(cmd, experiment.CulpritName, jsonFile, svgFile, func(progress func(experiment.Progress)) (experiment.Result, error) {
				cfg.Progress = progress
				return experiment.Culprit(cmd.Context(), cfg)
			})
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&cfg.Repeats, "repeats", experiment.CulpritRepeats, "runs in which a pod is guilty")
	flags.IntVar(&cfg.Nobody, "nobody", experiment.CulpritNobody, "runs in which none is")
	flags.IntVar(&cfg.Seconds, "seconds", experiment.CulpritSeconds, "for how long a pod is guilty; nobody is named before the lead, a third longer, was two minutes")
	resultFlags(cmd, &jsonFile, &svgFile)
	hostFlags(cmd, &cfg.Config)
	return cmd
}
