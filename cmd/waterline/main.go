// Command waterline shows, explains and undoes what Waterline does on a node. It is also installed as
// kubectl-waterline.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/waterline-io/waterline/internal/report"
)

// version and commit are set when a release is built.
var version, commit = "dev", ""

// The exit codes.
const (
	exitFailed   = 1 // the command failed, or what it checks is not well
	exitUsage    = 2 // the arguments are invalid
	exitUnusable = 2 // of replay: there was nothing to compare
)

// exitError is an error with an exit code of its own.
type exitError struct {
	error
	code int
}

func (e exitError) Unwrap() error { return e.error }

// usageError returns an error that says that the command line is wrong; nil for nil.
func usageError(err error) error {
	if err == nil {
		return nil
	}
	return exitError{err, exitUsage}
}

// noArguments refuses arguments.
func noArguments(c *cobra.Command, args []string) error {
	return refusing(c.Name()+" takes no arguments, but got %q")(c, args)
}

// refusing refuses arguments by a format, in which the first one is the operand.
func refusing(format string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) > 0 {
			return usageError(fmt.Errorf(format, args[0]))
		}
		return nil
	}
}

// parentCommand returns a command that only has another one below it.
func parentCommand(name, short string, child *cobra.Command) *cobra.Command {
	c := &cobra.Command{
		Use: name, Short: short,
		Args: refusing("there is no " + name + " command %q; it has " + child.Name()),
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(child)
	return c
}

// subcommands lists everything that the command can do.
func subcommands() []*cobra.Command {
	return append(onNode(),
		statusCommand(),
		topCommand(),
		explainCommand(),
		cpusCommand(),
		replayCommand(),
		parentCommand("simulate", "Run Waterline's decisions on recorded usage", simulateClusterCommand()),
		doctorCommand(),
		supportBundleCommand(),
		dashboardCommand(),
		migrateCommand(),
		rebalanceCommand(),
		parentCommand("yarn", "Check a YARN cluster before a pool of elastic NodeManagers joins it", yarnCheckCommand()),
		parentCommand("drain", "Drain servers of a remote shuffle service, and wait until nobody needs their data",
			drainShuffleCommand()),
		versionCommand(),
		convertCommand(),
	)
}

func main() { os.Exit(run()) }

// run carries out the command line and returns the exit code.
func run() int {
	// The first signal ends what is going on in good order; a second one is not waited for.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	context.AfterFunc(ctx, stop)
	err := rootCommand(os.Args[0]).ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, "waterline:", err)
	var exit exitError
	if errors.As(err, &exit) {
		return exit.code
	}
	return exitFailed
}

// asPlugin is the name under which kubectl runs the command as its plugin.
const asPlugin = "kubectl-waterline"

func rootCommand(executable string) *cobra.Command {
	root := &cobra.Command{
		Use:           "waterline",
		Short:         "Fill every node up to a waterline with batch work, while online services do not notice",
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args: func(cmd *cobra.Command, args []string) error {
			return refusing("unknown command %q; \""+cmd.CommandPath()+" --help\" lists them")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError(fmt.Errorf("%w; see \"%s --help\"", err, cmd.CommandPath()))
	})
	root.AddCommand(subcommands()...)
	if filepath.Base(executable) == asPlugin {
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl waterline"}
		spellExamples(root)
	}
	return root
}

// typed matches where an example has the name of the command.
var typed = regexp.MustCompile(`(?m)^(\s*)waterline `)

// spellExamples writes the examples of a command and of all below it as kubectl's users type them.
func spellExamples(c *cobra.Command) {
	c.Example = typed.ReplaceAllString(c.Example, "${1}kubectl waterline ")
	for _, sub := range c.Commands() {
		spellExamples(sub)
	}
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version, the commit, and what this command was built with and for",
		Args:  noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(c.OutOrStdout(), "waterline %s, commit %s, %s, %s/%s\n",
				version, builtFrom(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}

// builtFrom returns the commit that this executable was built from.
func builtFrom() string { return report.BuiltFrom(commit) }
