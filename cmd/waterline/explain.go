package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/waterline-io/waterline/internal/agent/serve"
	"github.com/waterline-io/waterline/internal/model"
)

func explainCommand() *cobra.Command {
	var kind, name, namespace, address, kubeconfig, output string
	c := &cobra.Command{
		Use:   "explain (pod NAME | node [NAME])",
		Short: "Explain a pod's cgroup files, or what a node sells",
		Long: `Explain a pod: the value that each of its cgroup files should have, has and had, and why. Or explain a node: who uses
its CPU and memory, how much batch may use now, how much is sold, and why.`,
		Example: `  waterline explain pod web-0 -n shop
  waterline explain node worker-3
  waterline explain node --agent 127.0.0.1:9465          (on the node itself)`,
		Args: func(_ *cobra.Command, args []string) (err error) {
			if kind, name, err = explained(args); err == nil && kind == "node" && name != "" && address != "" {
				err = usageError{fmt.Errorf("--agent and %q both say whom to ask: write one of them", name)}
			}
			return err
		},
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(c.Context(), time.Minute)
			defer cancel()
			if address == "" {
				config, err := findCluster(kubeconfig)
				if err != nil {
					return fmt.Errorf("%w; on the node itself use --agent", err)
				}
				node := name
				if kind == "pod" || name == "" {
					if node, err = findNode(ctx, config, namespace, podName(kind, name)); err != nil {
						return err
					}
				}
				forwarded, stop, err := forwardToNode(ctx, config, node)
				if err != nil {
					return err
				}
				defer stop()
				address = forwarded
			}
			if kind == "node" {
				return explainNode(ctx, c.OutOrStdout(), address, name, output)
			}
			e, err := explainPod(ctx, address, namespace, name)
			if err != nil {
				return err
			}
			if output == "json" {
				return printJSON(c.OutOrStdout(), e)
			}
			return printExplanation(c.OutOrStdout(), e)
		},
	}
	c.Flags().StringVarP(&namespace, "namespace", "n", "default", "namespace of the pod")
	c.Flags().StringVar(&address, "agent", "",
		"address of the agent's --local; without it the agent is reached through the cluster")
	kubeconfigFlag(c, &kubeconfig)
	c.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	return c
}

// explained reads what is to be explained, written as "pod NAME" or "pod/NAME"; a node may have no name.
func explained(args []string) (kind, name string, err error) {
	if len(args) == 1 {
		kind, name, _ = strings.Cut(args[0], "/")
	} else if len(args) == 2 {
		kind, name = args[0], args[1]
	}
	if kind == "pod" && name != "" || kind == "node" {
		return kind, name, nil
	}
	return "", "", usageError{
		errors.New("write waterline explain pod NAME, or waterline explain node [NAME]"),
	}
}

func podName(kind, name string) string {
	if kind == "pod" {
		return name
	}
	return ""
}

// explainPod queries an agent about a pod.
func explainPod(ctx context.Context, address, namespace, name string) (serve.Explanation, error) {
	var e serve.Explanation
	err := getFromAgent(ctx, address, "/explain", url.Values{"namespace": {namespace}, "pod": {name}}, &e)
	return e, err
}

func printExplanation(out io.Writer, e serve.Explanation) error {
	fmt.Fprintf(out, "pod %s/%s  %s  uid %s  policy %s\n", e.Namespace, e.Name, e.QoS, e.UID, e.Mode)
	if len(e.Files) == 0 {
		fmt.Fprintln(out, "Waterline sets none of its files: the pod has no weight of its own, and the kubelet's values stay")
	}
	for _, f := range e.Files {
		fmt.Fprintf(out, "\n%s\n", f.Dir)
		t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprintf(t, "  %s\tshould be\t%s\n", f.Knob, f.Should)
		fmt.Fprintf(t, "\tis\t%s\n", orNone(f.Is, "not there"))
		fmt.Fprintf(t, "\twas\t%s\n", orNone(f.Was, "unchanged by us"))
		fmt.Fprintf(t, "\twhy\t%s\n", f.Why)
		if f.Deferred != "" {
			fmt.Fprintf(t, "\tnot written\t%s\n", f.Deferred)
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	if e.Leaves != "" {
		fmt.Fprintln(out, e.Leaves)
	}
	for _, w := range e.Waiting {
		fmt.Fprintf(out, "\n%s\n", w)
	}
	for _, n := range e.Notices {
		fmt.Fprintf(out, "\nnotice: %s\n", n)
	}
	return nil
}

func orNone(v *model.Value, none string) string {
	if v == nil {
		return none
	}
	return v.String()
}
