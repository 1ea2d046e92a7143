//go:build !linux

package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"
)

var errNotLinux = errors.New("this needs the kernel of a Linux node: run it there")

// onNode lists the commands that work on a node's kernel. Here they only say so.
func onNode() []*cobra.Command {
	var all []*cobra.Command
	for _, use := range []string{"demo", "restore"} {
		all = append(all, &cobra.Command{
			Use: use, Short: "On Linux only", DisableFlagParsing: true,
			RunE: func(*cobra.Command, []string) error { return errNotLinux },
		})
	}
	return all
}

// nodeChecks returns what says that a node's checks do not run here.
func nodeChecks(*cobra.Command) func(ctx context.Context, d *doctor) error {
	return func(context.Context, *doctor) error { return errNotLinux }
}
