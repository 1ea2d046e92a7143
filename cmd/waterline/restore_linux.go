package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/waterline-io/waterline/internal/agent/restore"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/host"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

func restoreCommand() *cobra.Command {
	cfg := restore.Config{Sys: host.DefaultSys}
	var manifests, kubeconfig, nodeName string
	c := &cobra.Command{
		Use:   "restore",
		Short: "Restore this node's cgroup files to their values without Waterline",
		Long: `Restore every cgroup file that the agent wrote on this node. Stop the agent first.

Files of known pods get the value that the kubelet computes from their specs; --kubeconfig with --node-name, or --pods,
says where the pods are found. All other files get the newest value of another writer, from the undo record.`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(c.Context(), 30*time.Second)
			defer cancel()
			switch {
			case manifests != "":
				cfg.Pods = kube.NewManifests(manifests, time.Second, "", int64(runtime.NumCPU())*1000,
					slog.New(slog.NewTextHandler(os.Stderr, nil)))
				cfg.Kubelet = func(context.Context) (model.Kubelet, error) { return kube.DefaultKubelet(), nil }
			case kubeconfig != "":
				config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
				if err != nil {
					return err
				}
				client, err := kube.NewClient(config)
				if err != nil {
					return err
				}
				cfg.Pods = kube.NewCluster(client, nil, nodeName, "", false, slog.New(slog.DiscardHandler))
			}
			restored, err := restore.Restore(ctx, cfg)
			for _, r := range restored {
				outcome := r.Reason.String()
				if r.Failed != "" {
					outcome = "refused: " + r.Failed
				}
				fmt.Fprintf(c.OutOrStdout(), "%s %s: %s -> %s (%s)\n", r.Dir, r.Knob, r.Ours, r.Value, outcome)
			}
			if err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "%d files restored\n", len(restored))
			return nil
		},
	}
	c.Flags().StringVar(&cfg.CgroupRoot, "cgroup-root", host.DefaultRoot, "where the cgroup file system is mounted")
	c.Flags().StringVar(&cfg.RunDir, "run-dir", "/run/waterline", "run directory of the agent")
	c.Flags().StringVar(&manifests, "pods", "", "directory of Pod manifests, as the agent's flag of this name")
	c.Flags().StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig file of the cluster that knows the pods")
	c.Flags().StringVar(&nodeName, "node-name", "", "with --kubeconfig: name of this node")
	c.MarkFlagsMutuallyExclusive("pods", "kubeconfig")
	c.MarkFlagsRequiredTogether("kubeconfig", "node-name")
	return c
}
