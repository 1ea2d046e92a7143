package main

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/waterline-io/waterline/internal/progress"
	"github.com/waterline-io/waterline/internal/report"
	"github.com/waterline-io/waterline/lab/memory"
)

func memoryCommand() *cobra.Command {
	var cfg memory.Config
	var out output
	cmd := &cobra.Command{
		Use:   memory.Name,
		Short: "A server that lives on its page cache beside a memory hog: refaults, kills and requests",
		Long: memory.About + fmt.Sprintf(`

The server answers one request after the other; each reads a random piece of a file of %d MiB. It runs
  alone         with the node to itself
  roomy         beside batch, on a node that has memory for both
  plain         beside batch, under an agent that protects no memory
  waterline     beside batch, under an agent that protects memory
and batch reads a file of %d MiB again and again, and takes more and more memory.

It needs root, cgroup v2, and no cluster. The node is a cgroup with so low a limit that memory is short; the other
memory of the machine is not used. Refaults and kills mean the same on any machine. Requests per second do so only on
one that does nothing else.`, memory.ServedBytes>>20, memory.StreamedBytes>>20),
		Example: "  sudo out/bin/lab memory --dir /var/tmp --json memory.json",
		Args: func(cmd *cobra.Command, args []string) error {
			if n := len(cfg.Disks); n != 0 && n != 2 {
				return usageError{errors.New("--disk: name two, the server's first, or none")}
			}
			return cmp.Or(noArguments(cmd, args), inRange("seconds", cfg.Seconds, 1, maxSeconds))
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return out.show(cmd, func(show func(progress.Step)) (report.Result, error) {
				cfg.Progress = show
				return memory.Run(cmd.Context(), cfg)
			})
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&cfg.Seconds, "seconds", memory.DefaultSeconds, "how long to measure each mode")
	flags.StringVar(&cfg.Dir, "dir", "", "directory on a disk for the two files (default: that for temporary files)")
	flags.StringSliceVar(&cfg.Disks, "disk", nil,
		"two disks or files to read instead, the server's first; they are not written to")
	out.flags(cmd)
	cfg.Flags(cmd.Flags())
	return cmd
}
