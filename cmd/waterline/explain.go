package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
)

type explainer struct {
	cluster reach
	address string // of an agent; "": it is reached through the cluster
	node    string // of the agent to ask about a pod; "": that of the pod
	journal string // a path; "": the agent's own journal, where one is needed
	at      moment
}

type answer interface {
	// print writes the explanation for people. Reason codes in it are explained below it.
	print(out io.Writer) error
	// meanings returns the words for those codes.
	meanings() meanings
}

// kinds are the things that can be explained.
var kinds = []string{"pod", "node", "worker", "pool", "policy"}

// printable replaces what could command a terminal. Messages of events may be a tenant's: the output of a probe.
func printable(text string) string {
	return strings.Map(func(c rune) rune {
		if c != '\n' && c != '\t' && !unicode.IsPrint(c) {
			return unicode.ReplacementChar
		}
		return c
	}, text)
}

func explainCommand() *cobra.Command {
	var e explainer
	var o output
	var kind, name string
	c := &cobra.Command{
		Use:   "explain (pod NAME | node [NAME] | worker NAME | pool NAME | policy NAME)",
		Short: "Explain a decision: of a pod, a node, a worker, a pool or a policy",
		Long: `Explain what Waterline decided, from which numbers, and why:

  pod     the value that each of its cgroup files should have, has and had; whether it is batch; why it was evicted,
          also after it is gone
  node    who uses its CPU and memory, how much batch may use now, how much is sold, and why no more
  worker  of a pool, by the name of its pod: its state, and which containers had to leave it, when and why, also after
          its pod is gone ("nm" is the same)
  pool    its workers, and why each is in its state
  policy  which nodes it governs and in which state they are, and why it does not govern others

Pods and nodes are explained by the agent on the node. With --at or --journal they are explained by a recorded round:
the last one at or before that time, of the agent's journal or of a copy of it.`,
		Example: `  waterline explain pod web-0 -n shop
  waterline explain pod encode-7 --node worker-3          (it is gone; that was its node)
  waterline explain node worker-3 --at 2026-11-23T14:05:00Z
  waterline explain pod web-0 -n shop --journal journals/worker-3
  waterline explain worker night-0 -n yarn
  waterline explain policy web-nodes
  waterline explain node --agent 127.0.0.1:9465           (without a cluster)`,
		Args: func(_ *cobra.Command, args []string) (err error) {
			if kind, name, err = explained(args); err != nil {
				return err
			}
			return e.check(kind, name)
		},
		ValidArgsFunction: e.completeArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(c.Context(), time.Minute)
			defer cancel()
			found, err := e.explain(ctx, kind, name)
			if found == nil {
				return err
			}
			out := c.OutOrStdout()
			failed := o.print(out, spelled(found), func() error {
				var text bytes.Buffer
				if err := found.print(&text); err != nil {
					return err
				}
				found.meanings().explain(&text, text.String())
				_, err := io.WriteString(out, printable(text.String()))
				return err
			})
			return errors.Join(failed, err)
		},
	}
	e.cluster.namespaced(c)
	c.Flags().StringVar(&e.address, "agent", "", agentUsage)
	c.Flags().StringVar(&e.node, "node", "", "with pod: its node, where the cluster does not know the pod any more")
	_ = c.RegisterFlagCompletionFunc("node", e.cluster.completion(nodeNames))
	c.Flags().StringVar(&e.journal, "journal", "", "explain by this journal: a run directory, a copy of it, or a file")
	c.Flags().Var(&e.at, "at", "explain by the last recorded round at or before this time (RFC 3339)")
	o.flag(c)
	return c
}

// explained reads what is to be explained, written as "pod NAME" or "pod/NAME". A node may have no name.
func explained(args []string) (kind, name string, err error) {
	if len(args) == 1 {
		kind, name, _ = strings.Cut(args[0], "/")
	} else if len(args) == 2 {
		kind, name = args[0], args[1]
	}
	if kind == "nm" {
		kind = "worker"
	}
	if slices.Contains(kinds, kind) && (name != "" || kind == "node") {
		return kind, name, nil
	}
	return "", "", usageError(errors.New(
		"write waterline explain and one of: pod NAME, node [NAME], worker NAME, pool NAME, policy NAME"))
}

func (e *explainer) check(kind, name string) (err error) {
	recorded := e.journal != "" || !e.at.IsZero()
	switch {
	case kind == "node" && name != "" && e.address != "":
		err = fmt.Errorf("use either --agent or a node's name, not both: %q", name)
	case e.journal != "" && e.address != "":
		err = errors.New("use either --agent or --journal, not both")
	case kind != "pod" && e.node != "":
		err = errors.New("--node is the node of a pod")
	case kind != "pod" && kind != "node" && (recorded || e.address != ""):
		err = fmt.Errorf("an agent and its journal know pods and their node, and no %s: leave --agent, --journal and --at "+
			"out", kind)
	}
	return usageError(err)
}

// explain makes the answer. An error beside an answer says what is missing in it.
func (e *explainer) explain(ctx context.Context, kind, name string) (answer, error) {
	if e.journal != "" {
		return e.byJournal(kind, name)
	}
	if kind == "pod" || kind == "node" {
		e.address = ownAgent(e.address, e.node != "" || kind == "node" && name != "")
	}
	var a *apis
	if e.address == "" {
		var err error
		if a, err = e.cluster.connect(); err != nil {
			if kind == "pod" || kind == "node" {
				err = fmt.Errorf("%w; --agent asks an agent without a cluster", err)
			}
			return nil, err
		}
	}
	switch kind {
	case "pod":
		return e.pod(ctx, a, name)
	case "node":
		return e.nodeAnswer(ctx, a, name)
	case "worker":
		return explainWorker(ctx, a, e.cluster.in(), name)
	case "pool":
		return explainPool(ctx, a, e.cluster.in(), name)
	}
	return explainPolicy(ctx, a, name)
}

func (e *explainer) completeArgs(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return kinds, cobra.ShellCompDirectiveNoFileComp
	}
	if len(args) > 1 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return e.cluster.completion(func(ctx context.Context, a *apis) ([]string, error) {
		switch in := e.cluster.in(); args[0] {
		case "node":
			return nodeNames(ctx, a)
		case "pool":
			return names(ctx, a.custom, "workerpools", in, &v1alpha1.WorkerPoolList{})
		case "policy":
			return names(ctx, a.custom, "colocationpolicies", "", &v1alpha1.ColocationPolicyList{})
		case "worker", "nm":
			var pods corev1.PodList
			err := a.core.Get().Namespace(in).Resource("pods").Param("labelSelector", v1alpha1.LabelPool).Do(ctx).Into(&pods)
			return namesOf(pods.Items, func(p *corev1.Pod) string { return p.Name }), err
		default:
			return names(ctx, a.core, "pods", in, &corev1.PodList{})
		}
	})(c, args, "")
}
