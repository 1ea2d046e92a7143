package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/waterline-io/waterline/internal/agent"
	"github.com/waterline-io/waterline/internal/model"
)

func explainCommand() *cobra.Command {
	var namespace, address, kubeconfig, output string
	c := &cobra.Command{
		Use:   "explain pod NAME",
		Short: "Show what each cgroup file of a pod should be, is and was, and why",
		Example: `  waterline explain pod web-0 -n shop
  waterline explain pod web-0 --agent 127.0.0.1:9465     (on the node itself)`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 1 && strings.HasPrefix(args[0], "pod/") && len(args[0]) > len("pod/") || len(args) == 2 && args[0] == "pod" {
				return nil
			}
			return usageError{errors.New("say which pod: waterline explain pod NAME")}
		},
		RunE: func(c *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(c.Context(), time.Minute)
			defer cancel()
			name := strings.TrimPrefix(args[len(args)-1], "pod/")
			if address == "" {
				config, err := findCluster(kubeconfig)
				if err != nil {
					return fmt.Errorf("%w; on the node itself use --agent", err)
				}
				forwarded, stop, err := forwardToAgent(ctx, config, namespace, name)
				if err != nil {
					return err
				}
				defer stop()
				address = forwarded
			}
			e, err := askAgent(ctx, address, namespace, name)
			if err != nil {
				return err
			}
			if output == "json" {
				encoder := json.NewEncoder(c.OutOrStdout())
				encoder.SetIndent("", "  ")
				return encoder.Encode(e)
			}
			return printExplanation(c.OutOrStdout(), e)
		},
	}
	c.Flags().StringVarP(&namespace, "namespace", "n", "default", "namespace of the pod")
	c.Flags().StringVar(&address, "agent", "", "address of the agent's --local; without it the agent is reached through the cluster")
	kubeconfigFlag(c, &kubeconfig)
	c.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	return c
}

// askAgent asks an agent what it knows of a pod.
func askAgent(ctx context.Context, address, namespace, name string) (agent.Explanation, error) {
	var e agent.Explanation
	err := getFromAgent(ctx, address, "/explain", url.Values{"namespace": {namespace}, "pod": {name}}, &e)
	return e, err
}

func printExplanation(out io.Writer, e agent.Explanation) error {
	fmt.Fprintf(out, "pod %s/%s  %s  uid %s  policy %s\n", e.Namespace, e.Name, e.QoS, e.UID, e.Mode)
	if len(e.Files) == 0 {
		fmt.Fprintln(out, "nothing of it is Waterline's: it has no weight of its own, and the kubelet's values stand")
	}
	for _, f := range e.Files {
		fmt.Fprintf(out, "\n%s\n", f.Dir)
		t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprintf(t, "  %s\tshould be\t%s\n", f.Knob, f.Should)
		fmt.Fprintf(t, "\tis\t%s\n", orNone(f.Is, "not there"))
		fmt.Fprintf(t, "\twas\t%s\n", orNone(f.Was, "unchanged by us"))
		fmt.Fprintf(t, "\twhy\t%s\n", f.Why)
		if f.Hold != "" {
			fmt.Fprintf(t, "\tnot written\t%s\n", f.Hold)
		}
		if err := t.Flush(); err != nil {
			return err
		}
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
