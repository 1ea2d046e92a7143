package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/waterline-io/waterline/internal/experiment"
)

func colocateCommand() *cobra.Command {
	var cfg experiment.ColocateConfig
	var jsonFile, svgFile string
	pods := inPods{name: experiment.ColocateName}
	var loads []int
	cmd := &cobra.Command{
		Use:   experiment.ColocateName,
		Short: "Redis beside ffmpeg and stress-ng: its latency and their work, with and without Waterline",
		Long: experiment.ColocateAbout + `

Redis is asked at random moments, whether or not it answers, for 1.5 ms of CPU each. It runs
  alone         with the machine to itself
  plain         beside batch, all pods as Kubernetes runs them, without an agent
  unsuppressed  beside batch pods, with an agent that does not suppress them
  waterline     beside batch pods, with an agent that does
in random order and with the same requests, and batch runs with the machine to itself. Runs in which the generator of the
requests was late by more than 1 ms, p99, do not count; each is tried three times.

It needs root, redis-server, ffmpeg and stress-ng, and no cluster. It takes all of the machine's CPU meanwhile, for about
17 minutes.

With --in-pods this machine is a node of a cluster. Its kubelet makes the pods, and its agent does what is compared: a policy that
goes before all others tells it what, on this node only, and is deleted at the end. Alone and plain mean a policy that is
switched off.`,
		Example: "  sudo waterline experiment colocate --repeats 1 --seconds 5 --load 60 --json colocate.json",
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) > 0:
				return usageError{fmt.Errorf("colocate takes no arguments, but got %q", args[0])}
			case cfg.Seconds < 1 || cfg.Seconds > maxSeconds:
				return usageError{fmt.Errorf("--seconds %d: write a number from 1 to %d", cfg.Seconds, maxSeconds)}
			case cfg.Repeats < 1 || cfg.Repeats > maxRepeats:
				return usageError{fmt.Errorf("--repeats %d: write a number from 1 to %d", cfg.Repeats, maxRepeats)}
			case cfg.Settle < 0 || cfg.Settle > maxSeconds:
				return usageError{fmt.Errorf("--settle %d: write a number from 0 to %d", cfg.Settle, maxSeconds)}
			case len(loads) == 0:
				return usageError{fmt.Errorf("--load: write at least one number")}
			}
			cfg.Loads = nil
			for _, percent := range loads {
				if percent < 1 || percent > 99 {
					return usageError{fmt.Errorf("--load %d: write percentages of one CPU, from 1 to 99", percent)}
				}
				cfg.Loads = append(cfg.Loads, float64(percent)/100)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return show(cmd, experiment.ColocateName, jsonFile, svgFile, func(progress func(experiment.Progress)) (r experiment.Result, err error) {
				cfg.Progress = progress
				err = pods.in(cmd.Context(), &cfg.Config, func() error {
					r, err = experiment.Colocate(cmd.Context(), cfg)
					return err
				})
				return r, err
			})
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&cfg.Seconds, "seconds", experiment.ColocateSeconds, "how long to measure each mode at each load")
	flags.IntVar(&cfg.Repeats, "repeats", experiment.ColocateRepeats, "how often to measure each")
	flags.IntVar(&cfg.Settle, "settle", 0, fmt.Sprintf("seconds that mode waterline runs before it is measured (default 3; with --in-pods %d)", experiment.ColocateSettle))
	flags.IntSliceVar(&loads, "load", []int{30, 60}, "percent of one CPU that the requests take together; can be given more than once")
	flags.StringVar(&cfg.Policy, "policy", "", "file with the ColocationPolicy of mode waterline (default: waterline 100 %, suppression CPUSet)")
	pods.flags(cmd)
	resultFlags(cmd, &jsonFile, &svgFile)
	hostFlags(cmd, &cfg.Config)
	return cmd
}

// maxRepeats is the most repeats that colocate may be asked for: more than a day of them.
const maxRepeats = 1000
