// Command lab runs the long experiments on Waterline: with real programs on this machine's kernel, and on a cluster.
// The short ones are in "waterline experiment".
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/waterline-io/waterline/lab/load"
	"github.com/waterline-io/waterline/lab/memory"
	"github.com/waterline-io/waterline/lab/sandbox"
	"github.com/waterline-io/waterline/lab/suppress"
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

// experiments lists the subcommands.
func experiments() []*cobra.Command {
	return []*cobra.Command{
		colocateCommand(),
		headlineCommand(),
		suppressCommand(),
		memoryCommand(),
		interferenceCommand(),
		transcodeCommand(),
	}
}

// helpers lists the helpers that this executable runs for its experiments.
func helpers() []sandbox.Helper {
	return append(append(load.Helpers(), suppress.Helper()), memory.Helpers()...)
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
		Short: "Measure with real programs what Waterline is worth, in experiments that take long",
		Long: `Measure with real programs what Waterline is worth. Each experiment takes minutes, most a quarter of an hour and
more, and uses all of the machine's CPU meanwhile: do not run it on a machine that does important work. The short
experiments are in "waterline experiment".`,
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
	root.AddCommand(experiments()...)
	root.AddCommand(&cobra.Command{
		Use:                sandbox.HelperCommand,
		Hidden:             true,
		DisableFlagParsing: true,
		RunE:               func(_ *cobra.Command, args []string) error { return sandbox.RunHelper(args, helpers()) },
	})
	return root
}

// builtFrom returns the commit that this executable was built from, by the build's flags or by the toolchain's note.
func builtFrom() string {
	if commit != "" {
		return commit
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, setting := range info.Settings {
			if setting.Key == "vcs.revision" {
				return setting.Value
			}
		}
	}
	return "unknown"
}
