package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/waterline-io/waterline/internal/experiment"
)

func memoryCommand() *cobra.Command {
	var cfg experiment.MemoryConfig
	var jsonFile, svgFile string
	cmd := &cobra.Command{
		Use:   experiment.MemoryName,
		Short: "A server that lives on its page cache beside a memory hog: refaults, kills and requests, with and without protect.memory",
		Long: experiment.MemoryAbout + fmt.Sprintf(`

The server answers requests as fast as they come, each of which reads a random piece of a file of %d MiB. It runs
  alone         with the node to itself
  roomy         beside batch, on a node that has memory for both
  plain         beside batch, under an agent that protects no memory
  waterline     beside batch, under an agent that does
and batch reads a file of %d MiB again and again, and takes more and more memory.

It needs root, cgroup v2, and no cluster. The node is a cgroup that may have so little memory that it is short; what else the machine
has stays as it is. How much is taken, and how often, means something on any machine; how fast it goes, only on one that does
nothing else.`, experiment.MemoryServed>>20, experiment.MemoryStreamed>>20),
		Example: "  sudo waterline experiment memory --dir /var/tmp --json memory.json",
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) > 0:
				return usageError{fmt.Errorf("memory takes no arguments, but got %q", args[0])}
			case cfg.Seconds < 1 || cfg.Seconds > maxSeconds:
				return usageError{fmt.Errorf("--seconds %d: write a number from 1 to %d", cfg.Seconds, maxSeconds)}
			case len(cfg.Disks) != 0 && len(cfg.Disks) != 2:
				return usageError{fmt.Errorf("--disk: name two, first the server's, or none")}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return show(cmd, experiment.MemoryName, jsonFile, svgFile, func(progress func(experiment.Progress)) (experiment.Result, error) {
				cfg.Progress = progress
				return experiment.Memory(cmd.Context(), cfg)
			})
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&cfg.Seconds, "seconds", experiment.MemorySeconds, "how long to measure each mode")
	flags.StringVar(&cfg.Dir, "dir", "", "directory on a disk for the two files (default: that for temporary files)")
	flags.StringSliceVar(&cfg.Disks, "disk", nil, "two disks or files to read instead, first the server's; nothing is written to them")
	resultFlags(cmd, &jsonFile, &svgFile)
	hostFlags(cmd, &cfg.Config)
	return cmd
}
