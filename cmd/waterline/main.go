// Command waterline shows, explains and undoes what Waterline does on a node. It is also installed as
// kubectl-waterline.
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
)

// version and commit are set when a release is built.
var version, commit = "dev", ""

// The exit codes.
const (
	exitFailed = 1 // the command failed
	exitUsage  = 2 // the arguments are invalid
)

// usageError is a mistake in the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// subcommands lists everything that the command can do.
func subcommands() []*cobra.Command {
	return []*cobra.Command{
		demoCommand(),
		experimentCommand(),
		explainCommand(),
		cpusCommand(),
		replayCommand(),
		simulateCommand(),
		doctorCommand(),
		yarnCommand(),
		restoreCommand(),
		helperCommand(),
	}
}

func main() { os.Exit(run()) }

// run carries out the command line and returns the exit code.
func run() int {
	// The first signal ends what is going on in good order; a second one is not waited for.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	context.AfterFunc(ctx, stop)
	err := rootCommand().ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, "waterline:", err)
	var usage usageError
	if errors.As(err, &usage) {
		return exitUsage
	}
	return exitFailed
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "waterline",
		Short:         "Fill every node up to a waterline with batch work, while online services do not notice",
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return usageError{fmt.Errorf("unknown command %q; \"waterline --help\" lists them", args[0])}
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%w; see \"%s --help\"", err, cmd.CommandPath())}
	})
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(subcommands()...)
	return root
}

// builtFrom returns the commit that this executable was built from: what the release build says, else what the
// toolchain noted.
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
