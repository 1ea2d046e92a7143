package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/waterline-io/waterline/internal/agent/serve"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/progress"
)

func cpusCommand() *cobra.Command {
	var node, address, plan string
	var cluster reach
	var o output
	var request serve.CPURequest
	c := &cobra.Command{
		Use:   "cpus",
		Short: "Show which pods run on which CPUs of a node, or plan a pod's CPU mode",
		Long: `Show the CPUs of a node: each socket, NUMA node, last-level cache and core, the pools that its threads belong to,
and the containers that have CPUs of their own.

With --plan, show only the containers that would move. Nothing moves. The exit code is 1 if the pod would be refused.`,
		Example: `  waterline cpus --node worker-3
  waterline cpus --plan shop/web-0=exclusive             (on the node of that pod)
  waterline cpus --agent 127.0.0.1:9465                  (without a cluster)`,
		Args: func(_ *cobra.Command, args []string) (err error) {
			switch {
			case len(args) > 0:
				err = fmt.Errorf("cpus takes no arguments, but got %q; a node is named with --node", args[0])
			case node != "" && address != "":
				err = errors.New("use either --agent or --node, not both")
			case plan != "":
				if request, err = serve.ParseCPURequest(plan); err != nil {
					err = fmt.Errorf("--plan %w", err)
				}
			}
			return usageError(err)
		},
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(c.Context(), time.Minute)
			defer cancel()
			address, node, stop, err := cluster.agent(ctx, address, node, request.Namespace, request.Name)
			if err != nil {
				return err
			}
			defer stop()
			out := c.OutOrStdout()
			if plan != "" {
				return showCPUPlan(ctx, out, address, request, &o)
			}
			var m serve.CPUMap
			if err := getFromAgent(ctx, address, "/cpus", nil, &m); err != nil {
				return err
			}
			return o.print(out, spelled(m), func() error { return printCPUMap(out, &m, node, paintFor(out)) })
		},
	}
	c.Flags().StringVar(&node, "node", "",
		"name of the node; without it the node of the pod in --plan, or the only one that has an agent")
	c.Flags().StringVar(&address, "agent", "", agentUsage)
	cluster.flags(c)
	_ = c.RegisterFlagCompletionFunc("node", cluster.completion(nodeNames))
	c.Flags().StringVar(&plan, "plan", "",
		"NAMESPACE/POD=MODE: plan the mode exclusive, share or none for a pod")
	o.flag(c)
	return c
}

// findNode finds the node to ask when none is named: that of a pod or, without one, that of the only agent.
func findNode(ctx context.Context, a *apis, namespace, pod string) (string, error) {
	if pod != "" {
		var found corev1.Pod
		err := a.core.Get().Namespace(namespace).Resource("pods").Name(pod).Do(ctx).Into(&found)
		switch {
		case err != nil:
			return "", fmt.Errorf("looking up the pod: %w", err)
		case found.Spec.NodeName == "":
			return "", fmt.Errorf("pod %s/%s is on no node yet", namespace, pod)
		}
		return found.Spec.NodeName, nil
	}
	found, err := agents(ctx, a, "")
	if err != nil {
		return "", fmt.Errorf("looking up the agents: %w", err)
	}
	return onlyNode(namesOf(found, func(p *corev1.Pod) string { return p.Spec.NodeName }), a.home(ctx))
}

// onlyNode returns the node of the only agent of a namespace. The error lists the nodes to choose from.
func onlyNode(nodes []string, namespace string) (string, error) {
	slices.Sort(nodes)
	switch len(nodes) {
	case 0:
		return "", fmt.Errorf("no agent runs in namespace %s", namespace)
	case 1:
		return nodes[0], nil
	}
	return "", usageError(fmt.Errorf("name a node with --node: there are %s", first(nodes, 5)))
}

// showCPUPlan shows an agent's answer to a plan request. The error is the refusal of the pod.
func showCPUPlan(ctx context.Context, out io.Writer, address string, request serve.CPURequest, o *output) error {
	var p serve.CPUPlan
	if err := getFromAgent(ctx, address, "/cpus", url.Values{"plan": {request.String()}}, &p); err != nil {
		return err
	}
	err := o.print(out, spelled(p), func() error { return printCPUPlan(out, &p, request) })
	if err == nil && p.Refusal != "" {
		err = fmt.Errorf("pod %s/%s would not become %s: %s", request.Namespace, request.Name, request.Mode, p.Refusal)
	}
	return err
}

func printCPUPlan(out io.Writer, p *serve.CPUPlan, r serve.CPURequest) error {
	fmt.Fprintf(out, "With mode %s for pod %s/%s, ", r.Mode, r.Namespace, r.Name)
	if len(p.Moves) == 0 {
		_, err := fmt.Fprintln(out, "no container would move.")
		return err
	}
	fmt.Fprintf(out, "%s would move:\n\n", count(len(p.Moves), "container"))
	return table(out, "POD\tCONTAINER\tFROM\tTO\tWHY", p.Moves, func(m *serve.CPUMove) string {
		return fmt.Sprintf("%s/%s\t%s\t%s\t→ %s\t%s", m.Namespace, m.Name, m.Container, cpuList(m.From), cpuList(m.To), m.Why)
	})
}

// cpuList writes a set for people.
func cpuList(s model.CPUSet) string {
	if s.Empty() {
		return "none"
	}
	return s.String()
}

// paintFor returns what colours a mark: on a terminal, unless the user wants none (https://no-color.org).
func paintFor(out io.Writer) func(mark byte) string {
	if os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && progress.IsTerminal(out) {
		return painted
	}
	return plain
}

func plain(mark byte) string { return string(rune(mark)) }

func painted(mark byte) string {
	colours := map[byte]string{markTwice: "1;31", markExclusive: "1;35", markShare: "33", markReserved: "34",
		markShared: "32"}
	if colour, found := colours[mark]; found {
		return "\x1b[" + colour + "m" + string(rune(mark)) + normal
	}
	return plain(mark)
}
