package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/waterline-io/waterline/internal/observe/host"
	"github.com/waterline-io/waterline/internal/progress"
	"github.com/waterline-io/waterline/lab/experiment"
	"github.com/waterline-io/waterline/lab/sandbox"
)

// maxSeconds is the longest time that one experiment may measure: a day.
const maxSeconds = 86400

func experimentCommand() *cobra.Command {
	var cfg experiment.Config
	var jsonFile, svgFile string
	cmd := &cobra.Command{
		Use:   "experiment NAME",
		Short: "Measure the effect of weights, CPU sets and bursts on this kernel",
		Long:  experimentHelp(),
		Example: `  sudo waterline experiment weights
  sudo waterline experiment preempt --hog --seconds 20 --json preempt.json --svg preempt.svg`,
		ValidArgs: experimentNames(),
		Args: func(_ *cobra.Command, args []string) error {
			names := strings.Join(experimentNames(), ", ")
			if len(args) != 1 {
				return usageError{fmt.Errorf("name one experiment: %s", names)}
			}
			if _, found := experiment.Find(args[0]); !found {
				return usageError{fmt.Errorf("there is no experiment %q; there are %s; longer ones are in the lab, which "+
					"\"make build\" builds in the source tree: see \"out/bin/lab --help\"", args[0], names)}
			}
			if cfg.Seconds < 0 || cfg.Seconds > maxSeconds {
				return usageError{fmt.Errorf("--seconds %d: write a number from 1 to %d, or 0 for the default",
					cfg.Seconds, maxSeconds)}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			e, _ := experiment.Find(args[0])
			line := progress.NewLine(cmd.ErrOrStderr())
			cfg.Progress = line.Show
			result, err := e.Run(cmd.Context(), cfg)
			line.End()
			if err != nil {
				return fmt.Errorf("experiment %s: %w", e.Name, err)
			}
			if err := result.Save(jsonFile, svgFile, builtFrom()); err != nil {
				return err
			}
			result.Print(cmd.OutOrStdout())
			return nil
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&cfg.Seconds, "seconds", 0,
		"how long to measure; for hierarchy each level, for cpuset and burst each mode (default: see above)")
	flags.BoolVar(&cfg.Hog, "hog", false, "let one more pod, annotated 262144, burn all CPUs meanwhile")
	flags.StringVar(&jsonFile, "json", "", "write the figures into this file")
	flags.StringVar(&svgFile, "svg", "", "draw the chart into this file")
	sandboxFlags(cmd, &cfg.Config)
	return cmd
}

// sandboxFlags adds the flags that say where an experiment finds what it needs.
func sandboxFlags(cmd *cobra.Command, cfg *sandbox.Config) {
	cmd.Flags().StringVar(&cfg.AgentPath, "agent", "",
		"executable of the agent (default: "+sandbox.AgentName+" beside this executable, else in PATH)")
	cmd.Flags().StringVar(&cfg.CgroupRoot, "cgroup-root", host.DefaultRoot, "where the cgroup file system is mounted")
}

func experimentNames() []string {
	var names []string
	for _, e := range experiment.All() {
		names = append(names, e.Name)
	}
	return names
}

func experimentHelp() string {
	var b strings.Builder
	b.WriteString(`Measure the effect of weights, CPU sets and bursts on this kernel, with real processes. Needs root and no cluster: an
experiment makes its own cgroups in the kubelet's layout, runs the real agent and load in them, and removes them.

It takes most of the machine's CPU meanwhile: do not run it on a machine that does important work.

Experiments:
`)
	for _, e := range experiment.All() {
		fmt.Fprintf(&b, "  %-10s (%d s) %s\n", e.Name, e.Seconds, e.About)
	}
	b.WriteString("\nLonger experiments are in the lab, a command in the source tree: see \"out/bin/lab --help\" after " +
		"\"make build\".")
	return b.String()
}

// helperCommand is how experiments start load and outside readers; see sandbox.RunHelper.
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
