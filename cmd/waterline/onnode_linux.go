package main

import "github.com/spf13/cobra"

// onNode lists the commands that work on a node's kernel.
func onNode() []*cobra.Command {
	return []*cobra.Command{demoCommand(), restoreCommand(), helperCommand()}
}
