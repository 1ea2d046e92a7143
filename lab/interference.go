package main

import (
	"cmp"

	"github.com/spf13/cobra"

	"github.com/waterline-io/waterline/internal/progress"
	"github.com/waterline-io/waterline/internal/report"
	"github.com/waterline-io/waterline/lab/interference"
)

func interferenceCommand() *cobra.Command {
	var cfg interference.Config
	var out output
	cmd := &cobra.Command{
		Use:   interference.Name,
		Short: "A server and four batch pods, one of which takes its CPU: which pod is named, and how soon",
		Long: interference.About + `

The server gets requests at random moments, whether or not it answers. In each run another pod begins to run on its
CPU, and is guilty. Three innocent pods, one of them bigger, run on another CPU. Where no pod is guilty a process
outside of all pods does the same. The runs come in random order. The result has
  which pod was named, after how many seconds, with which score
  for how much of the time the server waits, and its p99: before the pod begins, until it is throttled, then, and
  afterwards
  how the trial ended, and whether the pod was free again in the end

It needs root, two CPUs, and no cluster, and takes five minutes a run. On a machine that does something else the
server waits for that, too.`,
		Example: "  sudo out/bin/lab interference --repeats 3 --nobody 1 --json interference.json",
		Args: func(cmd *cobra.Command, args []string) error {
			return cmp.Or(
				noArguments(cmd, args),
				inRange("seconds", cfg.Seconds, 2, maxSeconds),
				inRange("repeats", cfg.Repeats, 1, maxRepeats),
				inRange("nobody", cfg.Nobody, 0, maxRepeats),
			)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return out.show(cmd, func(show func(progress.Step)) (report.Result, error) {
				cfg.Progress = show
				return interference.Run(cmd.Context(), cfg)
			})
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&cfg.Repeats, "repeats", interference.DefaultRepeats, "runs in which a pod is guilty")
	flags.IntVar(&cfg.Nobody, "nobody", interference.DefaultNobody, "runs in which no pod is guilty")
	flags.IntVar(&cfg.Seconds, "seconds", interference.DefaultSeconds, "for how long a pod is guilty; "+
		"the agent names no pod before two minutes of measurements, and the lead is a third longer than this")
	out.flags(cmd)
	sandboxFlags(cmd, &cfg.Config)
	return cmd
}
