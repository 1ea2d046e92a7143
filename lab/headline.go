package main

import (
	"cmp"
	"errors"
	"fmt"
	"math"

	"github.com/spf13/cobra"

	"github.com/waterline-io/waterline/internal/progress"
	"github.com/waterline-io/waterline/internal/report"
	"github.com/waterline-io/waterline/internal/sim/trace"
	"github.com/waterline-io/waterline/lab/dataset"
	"github.com/waterline-io/waterline/lab/headline"
	"github.com/waterline-io/waterline/lab/kube"
)

// dayChoice chooses the day that headline repeats.
type dayChoice struct {
	traces, machine string
	number          int
}

func headlineCommand() *cobra.Command {
	var cfg headline.Config
	var out output
	var minutes float64
	var day dayChoice
	var pods inPods
	cmd := &cobra.Command{
		Use:   headline.Name,
		Short: "A day of online load, compressed: its latency and the machine's use, with and without ffmpeg beside it",
		Long: headline.About + `

Redis gets requests at random moments, whether or not it answers, of 1.5 ms of CPU each. Together they take as much
CPU as a machine used in the course of a day, scaled to --load in the mean. It runs
  alone      with the machine to itself
  waterline  beside ffmpeg in a batch pod, with an agent that limits ffmpeg to the rest of the machine
in random order and with the same requests. Runs in which the generator of the requests was late by more than 1 ms,
p99, do not count; each is tried three times.

The day comes from a trace below --trace, in the form that "lab predict" reads; without it, the day is
made up.

It needs root, redis-server and ffmpeg, and no cluster. It takes about 21 minutes.

With --in-pods this machine is a node of a cluster. Its kubelet makes the pods, ffmpeg's on the node's batch
resources, and its agent follows the policy: the experiment makes a policy with precedence over all others, on this
node only, and deletes it at the end. Mode alone has a policy that is disabled.`,
		Example: `  sudo out/bin/lab headline --trace traces --json headline.json --svg headline.svg
  sudo out/bin/lab headline --minutes 1`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case !(minutes >= 0.1 && minutes <= maxSeconds/60):
				return usageError{fmt.Errorf("--minutes %g: write a number from 0.1 to %d", minutes, maxSeconds/60)}
			case !(cfg.Percent > 0 && cfg.Percent < 100):
				return usageError{fmt.Errorf("--load %g: write a percentage of the machine's CPUs, above 0 and below 100",
					cfg.Percent)}
			case day.traces == "" && (day.machine != "" || day.number != 1):
				return usageError{errors.New("--machine and --day choose from traces; say where those are with --trace")}
			case day.number < 1:
				return usageError{fmt.Errorf("--day %d: write a number from 1", day.number)}
			}
			cfg.Seconds = int(math.Round(60 * minutes))
			return cmp.Or(noArguments(cmd, args), inRange("repeats", cfg.Repeats, 1, maxRepeats))
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return out.show(cmd, func(show func(progress.Step)) (r report.Result, err error) {
				cfg.Progress = show
				if cfg.Day, err = day.read(); err != nil {
					return r, err
				}
				return pods.run(cmd.Context(), headline.Name, func(node *kube.Host) (report.Result, error) {
					cfg.Node = node
					return headline.Run(cmd.Context(), cfg)
				})
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&day.traces, "trace", "", "directory of the traces (default: none, a day is made up)")
	flags.StringVar(&day.machine, "machine", "",
		"with --trace, the machine's name, such as m_1934 (default: the first with a whole day)")
	flags.IntVar(&day.number, "day", 1, "with --trace, which of the machine's whole days")
	flags.Float64Var(&minutes, "minutes", headline.DefaultMinutes, "how long the day takes")
	flags.Float64Var(&cfg.Percent, "load", headline.DefaultPercent,
		"percent of the machine's CPUs that the requests take together, in the mean of the day")
	flags.IntVar(&cfg.Repeats, "repeats", headline.DefaultRepeats, "how often to measure each")
	flags.StringVar(&cfg.Policy, "policy", "",
		"file with the ColocationPolicy (default: waterline 100 %, suppression by harm)")
	pods.flags(cmd)
	out.flags(cmd)
	cfg.Flags(cmd.Flags())
	return cmd
}

// read returns the day. Without traces it is made up, and its name says so.
func (d *dayChoice) read() (headline.Day, error) {
	machine, name := dataset.Generate(trace.Online(1), 1), "no machine: it is made up, low at midnight and high at noon"
	if d.traces != "" {
		var err error
		if machine, err = headline.FindMachine(d.traces, d.machine); err != nil {
			return headline.Day{}, err
		}
		name = fmt.Sprintf("machine %s, its whole day %d", machine.Name, d.number)
	}
	values, err := machine.Day(d.number)
	return headline.Day{Name: name, Values: values}, err
}
