package main

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/observe/kube"
	"github.com/waterline-io/waterline/internal/progress"
	"github.com/waterline-io/waterline/internal/report"
	labkube "github.com/waterline-io/waterline/lab/kube"
	"github.com/waterline-io/waterline/lab/sandbox"
	"github.com/waterline-io/waterline/lab/transcode"
)

const maxJobs = 100 // a node has 110 pods by default

func transcodeCommand() *cobra.Command {
	var cfg transcode.Config
	var out output
	var kubeconfig string
	const label = v1alpha1.LabelExperiment
	cmd := &cobra.Command{
		Use:   transcode.Name,
		Short: "On a node of a cluster: real ffmpeg jobs, half of them weighted",
		Long: transcode.About + `

It makes an even number of pods on one node of a cluster, with equal requests and without limits. Each first makes a
clip of two seconds. At the same second all begin to transcode it with libx264, again and again until the media
seconds are full. The pods use all CPUs of the node that they can get. The experiment deletes everything that it made,
also after Ctrl-C.

The agent must run on the node, and its policy must allow the weight of 262144, also beside pods that request CPU.
The namespace that the experiment makes is labelled ` + label + `=` + transcode.Name + `; a policy with a lower
weight.max allows it there by
  weight:
    overrideGuaranteed: true
    namespaces: [{selector: {matchLabels: {` + label + `: ` + transcode.Name + `}}, max: 262144}]
The experiment reads the weights with "waterline explain", from the waterline beside this executable or in PATH.`,
		Example: "  out/bin/lab transcode --node worker-7 --seconds 60 --json transcode.json",
		Args: func(cmd *cobra.Command, args []string) error {
			if cfg.Jobs < 0 || cfg.Jobs > maxJobs || cfg.Jobs%2 != 0 {
				return usageError{fmt.Errorf("--jobs %d: write an even number up to %d, or 0 for the default", cfg.Jobs, maxJobs)}
			}
			return cmp.Or(noArguments(cmd, args), inRange("seconds", cfg.Seconds, 1, maxSeconds))
		},
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if cfg.Cluster, err = labkube.FindCluster(kubeconfig); err != nil {
				return err
			}
			if cfg.Client, err = kube.NewClient(cfg.Cluster); err != nil {
				return err
			}
			cfg.Weight = explainWeight(kubeconfig)
			return out.show(cmd, func(show func(progress.Step)) (report.Result, error) {
				cfg.Progress = show
				return transcode.Run(cmd.Context(), cfg)
			})
		},
	}
	flags := cmd.Flags()
	kubeconfigFlag(cmd, &kubeconfig)
	flags.StringVar(&cfg.Node, "node", "", "node to run on (default: the only one that takes pods)")
	flags.StringVarP(&cfg.Namespace, "namespace", "n", "", "namespace to run in (default: a new one, deleted at the end)")
	flags.StringVar(&cfg.Image, "image", transcode.DefaultImage,
		"image with ffmpeg, libx264 and a shell; the default one is built by make bed")
	flags.IntVar(&cfg.Seconds, "seconds", transcode.DefaultSeconds, "media seconds that each job transcodes")
	flags.IntVar(&cfg.Jobs, "jobs", 0,
		"number of jobs, half of them weighted (default: such that they want four times the node's CPUs)")
	out.flags(cmd)
	return cmd
}

// explainWeight returns how to read the weight of a pod. If the waterline command is missing, the weights are unknown,
// which is no reason not to run.
func explainWeight(kubeconfig string) func(context.Context, string, string) (transcode.Weight, error) {
	waterline, err := sandbox.FindExecutable("waterline", "")
	if err != nil {
		return func(context.Context, string, string) (transcode.Weight, error) { return transcode.Weight{}, err }
	}
	return transcode.ExplainWeight(waterline, kubeconfig)
}
