// Command lab measures what Waterline is worth: with load on this machine's kernel, with real programs, on a cluster,
// and on traces.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/waterline-io/waterline/lab/experiment"
	"github.com/waterline-io/waterline/lab/memory"
	"github.com/waterline-io/waterline/lab/sandbox"
)

// version and commit are set by the build.
var version, commit = "dev", ""

// The exit codes.
const (
	exitFailed = 1 // the experiment could not be carried out
	exitUsage  = 2 // the command line is wrong
)

// usageError is a mistake in the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// longCommands returns a command for each experiment that takes minutes.
func longCommands() []*cobra.Command {
	return []*cobra.Command{
		colocateCommand(),
		headlineCommand(),
		memoryCommand(),
		transcodeCommand(),
	}
}

// helpers lists the helpers that this executable runs for its experiments.
func helpers() []sandbox.Helper {
	return append(experiment.Helpers(), memory.Helpers()...)
}

func main() { os.Exit(run()) }

// run carries out the command line and returns the exit code.
func run() int {
	// The first signal ends the experiment in good order. The second one ends the process.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	context.AfterFunc(ctx, stop)
	err := rootCommand().ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, "lab:", err)
	var usage usageError
	if errors.As(err, &usage) {
		return exitUsage
	}
	return exitFailed
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "lab",
		Short: "Measure what Waterline is worth",
		Long: `Measure what Waterline is worth. Experiments use all of the machine's CPU meanwhile: do not run them on a
machine that does important work.`,
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return usageError{fmt.Errorf("unknown experiment %q; \"lab --help\" lists them", args[0])}
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%w; see \"%s --help\"", err, cmd.CommandPath())}
	})
	root.CompletionOptions.HiddenDefaultCmd = true
	for _, g := range []struct {
		cobra.Group
		commands []*cobra.Command
	}{
		{cobra.Group{ID: "short", Title: "On this machine's kernel, in seconds:"}, shortCommands()},
		{cobra.Group{ID: "long", Title: "With real programs and on clusters, in minutes:"}, longCommands()},
		{cobra.Group{ID: "traces", Title: "On recorded usage:"}, []*cobra.Command{
			clusterCommand(), poolCommand(), predictCommand(), sweepCommand(),
		}},
	} {
		root.AddGroup(&g.Group)
		for _, cmd := range g.commands {
			cmd.GroupID = g.ID
		}
		root.AddCommand(g.commands...)
	}
	root.AddCommand(&cobra.Command{
		Use:                sandbox.HelperCommand,
		Hidden:             true,
		DisableFlagParsing: true,
		RunE:               func(_ *cobra.Command, args []string) error { return sandbox.RunHelper(args, helpers()) },
	})
	return root
}
