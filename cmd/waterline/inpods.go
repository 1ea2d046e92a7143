package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/waterline-io/waterline/internal/experiment"
	onkube "github.com/waterline-io/waterline/internal/experiment/kube"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

// inPods says whether an experiment runs in pods of the node that this machine is.
type inPods struct {
	name       string // of the experiment
	wanted     bool
	kubeconfig string
	host       onkube.HostConfig
}

func (p *inPods) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVar(&p.wanted, "in-pods", false, "in pods of the node that this machine is, with its agent")
	flags.StringVar(&p.host.Node, "node", "", "with --in-pods, the node that this machine is (default: the only one that takes pods)")
	flags.StringVar(&p.host.Image, "image", onkube.DefaultIdleImage, "with --in-pods, an image with sleep; the default one is built by make bed")
	kubeconfigFlag(cmd, &p.kubeconfig)
}

// in runs an experiment, on the node if that is wanted, and takes away what it made there.
func (p *inPods) in(ctx context.Context, cfg *experiment.Config, run func() error) (err error) {
	if !p.wanted {
		return run()
	}
	node, err := p.find(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, node.Close(context.WithoutCancel(ctx))) }()
	cfg.Node = node
	return run()
}

// find finds the node of a cluster that this machine is.
func (p *inPods) find(ctx context.Context) (*onkube.Host, error) {
	config, err := findCluster(p.kubeconfig)
	if err != nil {
		return nil, err
	}
	cfg := p.host
	cfg.Experiment = p.name
	if cfg.Client, err = kube.NewClient(config); err != nil {
		return nil, err
	}
	if cfg.Custom, err = kube.NewCustomClient(config); err != nil {
		return nil, err
	}
	return onkube.NewHost(ctx, cfg)
}
