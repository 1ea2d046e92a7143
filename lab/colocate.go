package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/waterline-io/waterline/internal/progress"
	"github.com/waterline-io/waterline/internal/report"
	"github.com/waterline-io/waterline/lab/colocate"
	"github.com/waterline-io/waterline/lab/kube"
	"github.com/waterline-io/waterline/lab/redisbench"
)

func colocateCommand() *cobra.Command {
	var cfg colocate.Config
	var out output
	var pods inPods
	var loads []int
	cmd := &cobra.Command{
		Use:   colocate.Name,
		Short: "Redis beside ffmpeg and stress-ng: its latency and their work, with and without Waterline",
		Long: colocate.About + `

Redis gets requests at random moments, whether or not it answers, of 1.5 ms of CPU each. It runs
  alone         with the machine to itself
  plain         beside batch, all pods as Kubernetes runs them, without an agent
  unsuppressed  beside batch pods, with an agent that does not suppress them
  waterline     beside batch pods, with an agent that suppresses them
in random order and with the same requests, and batch runs with the machine to itself. Runs in which the generator of
the requests was late by more than 1 ms, p99, do not count; each is tried three times.

With --batch, requests are look-ups in sets that no cache holds, and the policy of mode waterline also
names the server's own figure: the 99th percentile of two seconds, at most 15 % higher than the usual one alone.

It needs root, redis-server, ffmpeg and stress-ng, and no cluster. It takes about 17 minutes.

With --in-pods this machine is a node of a cluster. Its kubelet makes the pods, and its agent follows the policy of
each mode: the experiment makes a policy with precedence over all others, on this node only, and deletes it at the
end. Modes alone and plain have a policy that is disabled.`,
		Example: "  sudo out/bin/lab colocate --repeats 1 --seconds 5 --load 60 --json colocate.json",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(loads) == 0 {
				return usageError{errors.New("--load: write at least one number")}
			}
			cfg.Loads = nil
			for _, percent := range loads {
				if percent < 1 || percent > 99 {
					return usageError{fmt.Errorf("--load %d: write percentages of one CPU, from 1 to 99", percent)}
				}
				cfg.Loads = append(cfg.Loads, float64(percent)/100)
			}
			if _, known := redisbench.Stressors()[cfg.Stressor]; !known && cfg.Stressor != "" {
				return usageError{fmt.Errorf("--batch %q: write one of %s", cfg.Stressor,
					strings.Join(slices.Sorted(maps.Keys(redisbench.Stressors())), ", "))}
			}
			return cmp.Or(
				noArguments(cmd, args),
				inRange("seconds", cfg.Seconds, 1, maxSeconds),
				inRange("repeats", cfg.Repeats, 1, maxRepeats),
				inRange("minutes", cfg.Minutes, 0, maxMinutes),
				inRange("settle", cfg.Settle, 0, maxSeconds),
			)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return out.show(cmd, func(show func(progress.Step)) (report.Result, error) {
				cfg.Progress = show
				return pods.run(cmd.Context(), colocate.Name, func(node *kube.Host) (report.Result, error) {
					cfg.Node = node
					return colocate.Run(cmd.Context(), cfg)
				})
			})
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&cfg.Seconds, "seconds", colocate.DefaultSeconds, "how long to measure each mode at each load")
	flags.IntVar(&cfg.Repeats, "repeats", colocate.DefaultRepeats, "how often to measure each")
	flags.IntVar(&cfg.Minutes, "minutes", 0, "no repeat begins after so many minutes, but the first (default: all do)")
	flags.IntVar(&cfg.Settle, "settle", 0, fmt.Sprintf(
		"seconds that mode waterline runs before it is measured (default %d; with --in-pods %d)", colocate.Settle,
		colocate.NodeSettle))
	flags.IntSliceVar(&loads, "load", []int{30, 60},
		"percent of one CPU that the requests take together; can be given more than once")
	flags.StringVar(&cfg.Policy, "policy", "",
		"file with the ColocationPolicy of mode waterline (default: waterline 100 %, suppression by harm)")
	kinds := slices.Sorted(maps.Keys(redisbench.Stressors()))
	flags.StringVar(&cfg.Stressor, "batch", "", "batch is stress-ng alone, of kind "+strings.Join(kinds, ", ")+
		" (default: ffmpeg, and stress-ng of kind matrix)")
	flags.BoolVar(&cfg.Steps, "steps", false,
		"requests rest at 5 % of a CPU and rise to the load at once, about every four seconds")
	flags.BoolVar(&cfg.Crowd, "memcached", false, "a second online service beside Redis: memcached with eight threads")
	pods.flags(cmd)
	out.flags(cmd)
	cfg.Flags(cmd.Flags())
	return cmd
}
