package main

import (
	"fmt"
	"math"

	"github.com/spf13/cobra"

	"github.com/waterline-io/waterline/internal/experiment"
	"github.com/waterline-io/waterline/internal/sim/trace"
)

// whichDay says on what the day was measured that headline lives through.
type whichDay struct {
	root, machine string
	number        int
}

func headlineCommand() *cobra.Command {
	var cfg experiment.LiveDayConfig
	var jsonFile, svgFile string
	var minutes float64
	var which whichDay
	pods := inPods{name: experiment.LiveDayName}
	cmd := &cobra.Command{
		Use:   experiment.LiveDayName,
		Short: "A day of online load, compressed: its latency and what is used of the machine, with ffmpeg beside it and without",
		Long: experiment.LiveDayAbout + `

Redis is asked at random moments, whether or not it answers, for 1.5 ms of CPU each, as often as makes it use what a machine
used in the course of a day, scaled to --load in the mean. It runs
  alone      with the machine to itself
  waterline  beside ffmpeg in a batch pod, with an agent that keeps it to what is left
in random order and with the same requests. Runs in which the generator of the requests was late by more than 1 ms, p99, do not
count; each is tried three times.

The day is one of a trace below --trace, in the form that "waterline simulate predict" reads; without it, one that is made up.

It needs root, redis-server and ffmpeg, and no cluster. It takes all of the machine's CPU meanwhile, for about 21 minutes.

With --in-pods this machine is a node of a cluster. Its kubelet makes the pods, ffmpeg's on what the node sold, and its agent goes
by the policy: as one that goes before all others, on this node only, which is deleted at the end. Alone means a policy that is
switched off.`,
		Example: `  sudo waterline experiment headline --trace traces --json headline.json --svg headline.svg
  sudo waterline experiment headline --minutes 1`,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) > 0:
				return usageError{fmt.Errorf("headline takes no arguments, but got %q", args[0])}
			case !(minutes >= 0.1 && minutes <= maxSeconds/60):
				return usageError{fmt.Errorf("--minutes %g: write a number from 0.1 to %d", minutes, maxSeconds/60)}
			case cfg.Repeats < 1 || cfg.Repeats > maxRepeats:
				return usageError{fmt.Errorf("--repeats %d: write a number from 1 to %d", cfg.Repeats, maxRepeats)}
			case !(cfg.Percent > 0 && cfg.Percent < 100):
				return usageError{fmt.Errorf("--load %g: write a percentage of the machine's CPUs, above 0 and below 100", cfg.Percent)}
			case which.root == "" && (which.machine != "" || which.number != 1):
				return usageError{fmt.Errorf("--machine and --day choose from traces; say where those are with --trace")}
			case which.number < 1:
				return usageError{fmt.Errorf("--day %d: write a number from 1", which.number)}
			}
			cfg.Seconds = int(math.Round(60 * minutes))
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return show(cmd, experiment.LiveDayName, jsonFile, svgFile, func(progress func(experiment.Progress)) (r experiment.Result, err error) {
				cfg.Progress = progress
				if cfg.Day, err = which.read(); err != nil {
					return r, err
				}
				err = pods.in(cmd.Context(), &cfg.Config, func() error {
					r, err = experiment.LiveDay(cmd.Context(), cfg)
					return err
				})
				return r, err
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&which.root, "trace", "", "directory of the traces (default: none, a day is made up)")
	flags.StringVar(&which.machine, "machine", "", "with --trace, the machine's name, such as m_1934 (default: the first with a whole day)")
	flags.IntVar(&which.number, "day", 1, "with --trace, which of the machine's whole days")
	flags.Float64Var(&minutes, "minutes", experiment.LiveDayMinutes, "how long the day takes")
	flags.Float64Var(&cfg.Percent, "load", experiment.LiveDayPercent, "percent of the machine's CPUs that the requests take together, in the mean of the day")
	flags.IntVar(&cfg.Repeats, "repeats", experiment.LiveDayRepeats, "how often to measure each")
	flags.StringVar(&cfg.Policy, "policy", "", "file with the ColocationPolicy (default: waterline 100 %, suppression CPUSet)")
	pods.flags(cmd)
	resultFlags(cmd, &jsonFile, &svgFile)
	hostFlags(cmd, &cfg.Config)
	return cmd
}

// read returns the day. Without traces it is made up, and its name says so.
func (w *whichDay) read() (experiment.Day, error) {
	machine, name := trace.Generate(trace.Online(1), 1), "no machine: it is made up, low at midnight and high at noon"
	if w.root != "" {
		var err error
		if machine, err = trace.FindMachine(w.root, w.machine); err != nil {
			return experiment.Day{}, err
		}
		name = fmt.Sprintf("machine %s, its whole day %d", machine.Name, w.number)
	}
	values, err := machine.Day(w.number)
	return experiment.Day{Name: name, Values: values}, err
}
