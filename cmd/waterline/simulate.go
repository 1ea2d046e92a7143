package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func simulateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "simulate",
		Short: "Run Waterline's decisions on recorded usage",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError{fmt.Errorf("there is no simulation %q; there are cluster and sweep", args[0])}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(simulateClusterCommand(), simulateSweepCommand())
	return cmd
}
