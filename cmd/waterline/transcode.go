package main

import (
	"context"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/agent/serve"
	"github.com/waterline-io/waterline/internal/experiment"
	onkube "github.com/waterline-io/waterline/internal/experiment/kube"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

// maxJobs is the most jobs that transcode may be asked for: a node has 110 pods by default.
const maxJobs = 100

func transcodeCommand() *cobra.Command {
	var cfg onkube.Config
	var kubeconfig, jsonFile, svgFile string
	cmd := &cobra.Command{
		Use:   experiment.TranscodeName,
		Short: "On a node of a cluster: real ffmpeg jobs, half of them weighted",
		Long: experiment.TranscodeAbout + `

It makes an even number of pods on one node of a cluster, with equal requests and without limits. Each first makes a clip of
two seconds. At the same second all begin to transcode it with libx264, again and again until the media seconds are full.
The pods use all CPUs of the node that they can get. Nothing is left behind, also after Ctrl-C.

The agent must run on the node, and its policy must allow the weight of 262144. The namespace that the experiment makes is
labelled ` + v1alpha1.LabelExperiment + `=` + experiment.TranscodeName + `; a policy with a lower weight.max allows it there by
  weight: {namespaces: [{selector: {matchLabels: {` + v1alpha1.LabelExperiment + `: ` + experiment.TranscodeName + `}}, max: 262144}]}`,
		Example: "  waterline experiment transcode --node worker-7 --seconds 60 --json transcode.json",
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) > 0:
				return usageError{fmt.Errorf("transcode takes no arguments, but got %q", args[0])}
			case cfg.Seconds < 1 || cfg.Seconds > maxSeconds:
				return usageError{fmt.Errorf("--seconds %d: write a number from 1 to %d", cfg.Seconds, maxSeconds)}
			case cfg.Jobs < 0 || cfg.Jobs > maxJobs || cfg.Jobs%2 != 0:
				return usageError{fmt.Errorf("--jobs %d: write an even number up to %d, or 0 for the default", cfg.Jobs, maxJobs)}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := findCluster(kubeconfig)
			if err != nil {
				return err
			}
			cfg.Cluster = config
			if cfg.Client, err = kube.NewClient(config); err != nil {
				return err
			}
			cfg.Weight = func(ctx context.Context, namespace, pod string) (onkube.Weight, error) {
				return askWeight(ctx, config, namespace, pod)
			}
			return show(cmd, experiment.TranscodeName, jsonFile, svgFile, func(progress func(experiment.Progress)) (experiment.Result, error) {
				cfg.Progress = progress
				return onkube.Transcode(cmd.Context(), cfg)
			})
		},
	}
	flags := cmd.Flags()
	kubeconfigFlag(cmd, &kubeconfig)
	flags.StringVar(&cfg.Node, "node", "", "node to run on (default: the only one that takes pods)")
	flags.StringVarP(&cfg.Namespace, "namespace", "n", "", "namespace to run in (default: a new one, deleted at the end)")
	flags.StringVar(&cfg.Image, "image", onkube.DefaultImage, "image with ffmpeg, libx264 and a shell; the default one is built by make bed")
	flags.IntVar(&cfg.Seconds, "seconds", experiment.TranscodeSeconds, "media seconds that each job transcodes")
	flags.IntVar(&cfg.Jobs, "jobs", 0, "number of jobs, half of them weighted (default: such that they want four times the node's CPUs)")
	resultFlags(cmd, &jsonFile, &svgFile)
	return cmd
}

// askWeight asks the agent on the node of a pod what the pod weighs in the kernel.
func askWeight(ctx context.Context, config *rest.Config, namespace, pod string) (onkube.Weight, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	address, stop, err := forwardToAgent(ctx, config, namespace, pod)
	if err != nil {
		return onkube.Weight{}, err
	}
	defer stop()
	e, err := askAgent(ctx, address, namespace, pod)
	if err != nil {
		return onkube.Weight{}, err
	}
	return weightOf(&e), nil
}

// weightOf finds the weight of the pod itself, not that of its class, in what an agent explains.
func weightOf(e *serve.Explanation) onkube.Weight {
	for _, f := range e.Files {
		// With the systemd driver the directory has the UID with underscores.
		ofPod := strings.Contains(strings.ReplaceAll(path.Base(f.Dir), "_", "-"), e.UID)
		if ofPod && f.Knob == model.Shares.String() && f.Is != nil {
			return onkube.Weight{Shares: f.Is.Number, Why: strings.TrimSuffix(f.Why+"; "+f.Deferred, "; ")}
		}
	}
	return onkube.Weight{Why: "the agent gives the pods no weight: " + strings.Join(append(e.Notices, "policy "+string(e.Mode)), "; ")}
}
