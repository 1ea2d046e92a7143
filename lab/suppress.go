package main

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/progress"
	"github.com/waterline-io/waterline/internal/report"
	"github.com/waterline-io/waterline/lab/suppress"
)

const maxSteps = 10_000 // more than a day of them

// suppressMethods returns the values of --by.
func suppressMethods() map[string]model.SuppressMethod {
	return map[string]model.SuppressMethod{
		"harm": model.SuppressOnHarm, "arithmetic": model.SuppressByArithmetic,
	}
}

func suppressCommand() *cobra.Command {
	var cfg suppress.Config
	var out output
	var by string
	cmd := &cobra.Command{
		Use:   suppress.Name,
		Short: "A step in online load: how soon batch makes room, and has its CPU back",
		Long: suppress.About + `

The online pod does nothing, then wants half of the machine for some seconds, then does nothing again. A process
outside of the pods measures when
  batch may use only the rest of the machine, by its quota and its CPUs
  batch uses no more than that
  batch may again use as much as before
and how much lower its allowance was for a while. After each step the online load rests for twice as long as batch had
less: the agent takes load that rises sooner for swinging load, and then gives batch its CPU back only after a longer
time.

It needs root and no cluster. It takes about forty minutes. On a machine that does something else, that reduces what
batch may use, and the figures mean little.`,
		Example: "  sudo out/bin/lab suppress --steps 10 --by harm --json suppress.json",
		Args: func(cmd *cobra.Command, args []string) error {
			method, found := suppressMethods()[by]
			switch {
			case !found:
				return usageError{fmt.Errorf("--by %q: write harm or arithmetic", by)}
			case cfg.Policy != "" && cmd.Flags().Changed("by"):
				return usageError{errors.New("--by and --policy both say how batch is suppressed; write one of them")}
			}
			cfg.By = method
			return cmp.Or(
				noArguments(cmd, args),
				inRange("seconds", cfg.Seconds, 2, maxSeconds),
				inRange("steps", cfg.Steps, 1, maxSteps),
			)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return out.show(cmd, func(show func(progress.Step)) (report.Result, error) {
				cfg.Progress = show
				return suppress.Run(cmd.Context(), cfg)
			})
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&cfg.Steps, "steps", suppress.DefaultSteps, "how many steps")
	flags.IntVar(&cfg.Seconds, "seconds", suppress.DefaultSeconds, "how long each is")
	flags.StringVar(&by, "by", "arithmetic", "what limits batch: harm or arithmetic")
	flags.StringVar(&cfg.Policy, "policy", "", "file with a ColocationPolicy (default: waterline 100 %, suppression "+
		"by --by)")
	out.flags(cmd)
	sandboxFlags(cmd, &cfg.Config)
	return cmd
}
