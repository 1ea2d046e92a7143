package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/waterline-io/waterline/internal/observe/kube"
	"github.com/waterline-io/waterline/internal/progress"
	"github.com/waterline-io/waterline/internal/report"
	labkube "github.com/waterline-io/waterline/lab/kube"
)

const (
	maxSeconds = 86400 // that one measurement may take: a day
	maxRepeats = 1000  // more than a day of them
	maxMinutes = 1440  // a day
)

// output is where the result goes besides the terminal.
type output struct{ json, svg string }

func (o *output) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.json, "json", "", "write the figures into this file")
	cmd.Flags().StringVar(&o.svg, "svg", "", "draw the chart into this file")
}

// show runs an experiment, shows its progress, and presents its result.
func (o *output) show(cmd *cobra.Command, run func(func(progress.Step)) (report.Result, error)) error {
	line := progress.NewLine(cmd.ErrOrStderr())
	result, err := run(line.Show)
	line.End()
	if err != nil {
		return fmt.Errorf("experiment %s: %w", cmd.Name(), err)
	}
	if err := result.Save(o.json, o.svg, report.BuiltFrom(commit)); err != nil {
		return err
	}
	result.Print(cmd.OutOrStdout())
	return nil
}

func kubeconfigFlag(cmd *cobra.Command, kubeconfig *string) {
	cmd.Flags().StringVar(kubeconfig, "kubeconfig", "", "kubeconfig file (default $KUBECONFIG, then ~/.kube/config)")
}

// noArguments returns an error if an experiment got arguments.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError{fmt.Errorf("%s takes no arguments, but got %q", cmd.Name(), args[0])}
	}
	return nil
}

// inRange returns an error if a flag's number is out of its range.
func inRange(flag string, is, least, most int) error {
	if is < least || is > most {
		return usageError{fmt.Errorf("--%s %d: write a number from %d to %d", flag, is, least, most)}
	}
	return nil
}

// inPods says whether an experiment runs in pods of the node that this machine is.
type inPods struct {
	wanted     bool
	kubeconfig string
	host       labkube.HostConfig
}

func (p *inPods) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVar(&p.wanted, "in-pods", false, "in pods of the node that this machine is, with its agent")
	flags.StringVar(&p.host.Node, "node", "",
		"with --in-pods, the node that this machine is (default: the only one that takes pods)")
	flags.StringVar(&p.host.Image, "image", labkube.DefaultIdleImage,
		"with --in-pods, an image with sleep; the default one is built by make bed")
	kubeconfigFlag(cmd, &p.kubeconfig)
}

// run runs an experiment, on the node if that is wanted, and deletes what it made there.
func (p *inPods) run(
	ctx context.Context, experiment string, run func(*labkube.Host) (report.Result, error),
) (r report.Result, err error) {
	if !p.wanted {
		return run(nil)
	}
	config, err := labkube.FindCluster(p.kubeconfig)
	if err != nil {
		return r, err
	}
	cfg := p.host
	cfg.Experiment = experiment
	if cfg.Client, err = kube.NewClient(config); err != nil {
		return r, err
	}
	if cfg.Custom, err = kube.NewCustomClient(config); err != nil {
		return r, err
	}
	node, err := labkube.NewHost(ctx, cfg)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, node.Close(context.WithoutCancel(ctx))) }()
	return run(node)
}
