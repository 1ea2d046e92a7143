package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/waterline-io/waterline/internal/convert"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

// system is a system whose configuration can be converted.
type system struct {
	name    string
	convert func([]convert.Document, convert.Options) (*convert.Result, error)
	paths   []string // of what is read from a cluster
	kinds   []string // of the objects there, which lists leave out
	only    string   // of the objects of the last path, those that name this; "": all
}

func systems() []system {
	return []system{
		{
			"koordinator", convert.Koordinator,
			[]string{
				"/api/v1/namespaces/koordinator-system/configmaps/slo-controller-config",
				"/apis/config.koordinator.sh/v1alpha1/clustercolocationprofiles", "/apis/slo.koordinator.sh/v1alpha1/nodeslos",
				"/api/v1/nodes",
			},
			[]string{"ConfigMap", "ClusterColocationProfile", "NodeSLO", "Node"}, "",
		},
		{
			"crane", convert.Crane,
			[]string{
				"/apis/ensurance.crane.io/v1alpha1/nodeqoss", "/apis/ensurance.crane.io/v1alpha1/podqoss",
				"/apis/ensurance.crane.io/v1alpha1/avoidanceactions", "/api/v1/nodes", "/apis/apps/v1/daemonsets",
			},
			[]string{"NodeQOS", "PodQOS", "AvoidanceAction", "Node", "DaemonSet"}, "crane-agent",
		},
		{
			"cpu-share-syncer", convert.CPUShareSyncer,
			[]string{"/api/v1/pods", "/apis/apps/v1/daemonsets"}, []string{"Pod", "DaemonSet"}, "cpu-share-syncer",
		},
	}
}

func convertCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "convert",
		Short: "Turn the configuration of Koordinator, Crane or cpu-share-syncer into policies",
		Args:  refusing("%q cannot be converted; there are koordinator, crane and cpu-share-syncer"),
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	for _, s := range systems() {
		c.AddCommand(s.command())
	}
	return c
}

func (s system) command() *cobra.Command {
	var cluster reach
	var o convert.Options
	c := &cobra.Command{
		Use:   s.name + " [FILE...|-]",
		Short: "Turn the configuration of " + s.name + " into policies",
		Long: fmt.Sprintf(`Print ColocationPolicies that come near to the configuration of %[1]s, with a comment on each key that
has no equal, and what else is needed. Nothing is changed. The policies are in mode Observe, so they change nothing
either when they are applied.

It reads files of YAML or JSON, as "kubectl get -o yaml" prints them, or - for the standard input. Without a file it
reads the cluster: %[2]s.

A value that %[1]s would refuse is an error: the exit code is 1, and nothing is printed. docs/migrate-%[1]s.md lists
every key, and the steps of a move.`, s.name, strings.Join(s.kinds, ", ")),
		Example: fmt.Sprintf(`  waterline convert %[1]s > policies.yaml
  waterline convert %[1]s config.yaml --node-label waterline-canary=true
  kubectl get nodes -o yaml | waterline convert %[1]s - config.yaml`, s.name),
		RunE: func(c *cobra.Command, args []string) error {
			var documents []convert.Document
			var err error
			from := "the cluster"
			if len(args) > 0 {
				from = strings.Join(args, ", ")
				documents, err = readFiles(c.InOrStdin(), args)
			} else {
				documents, err = s.readCluster(c.Context(), &cluster)
			}
			if err != nil {
				return err
			}
			if len(documents) == 0 {
				return fmt.Errorf("there is nothing of %s; name files with its configuration", s.name)
			}
			return s.print(c.OutOrStdout(), documents, o, from)
		},
	}
	c.Flags().StringVar(&o.NodeLabel, "node-label", "",
		"limit the policies to nodes with this label, KEY=VALUE, for a canary")
	cluster.flags(c)
	return c
}

// print converts documents and prints the policies. Whatever is printed, the API server accepts.
func (s system) print(out io.Writer, documents []convert.Document, o convert.Options, from string) error {
	result, err := s.convert(documents, o)
	if err != nil {
		return fmt.Errorf("converting: %w", err)
	}
	all, err := result.Documents()
	if err != nil {
		return err
	}
	var errs []error
	for _, document := range all {
		_, err := kube.ParsePolicy([]byte(document))
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("the input makes policies that cannot be used: %w", err)
	}
	text, err := result.YAML(fmt.Sprintf("Converted from the configuration of %s in %s.", s.name, from))
	if err == nil {
		_, err = io.WriteString(out, text)
	}
	return err
}

func readFiles(in io.Reader, names []string) ([]convert.Document, error) {
	var all []convert.Document
	var errs []error
	for _, name := range names {
		var content []byte
		var err error
		if name == "-" {
			name = "standard input"
			content, err = io.ReadAll(in)
		} else {
			content, err = os.ReadFile(name)
		}
		var documents []convert.Document
		if err == nil {
			documents, err = convert.Read(name, content)
		}
		errs = append(errs, err)
		all = append(all, documents...)
	}
	return all, errors.Join(errs...)
}

// readCluster reads what the system has in a cluster. A kind that the cluster does not have is left out.
func (s system) readCluster(ctx context.Context, r *reach) ([]convert.Document, error) {
	a, err := r.connect()
	if err != nil {
		return nil, err
	}
	var all []convert.Document
	for i, path := range s.paths {
		found, err := a.read(ctx, path, s.kinds[i])
		switch {
		case apierrors.IsNotFound(err):
			continue
		case err != nil:
			return nil, fmt.Errorf("reading %s: %w", path, err)
		}
		if i == len(s.paths)-1 && s.only != "" {
			found = slices.DeleteFunc(found, func(d convert.Document) bool {
				return !strings.Contains(d.Name()+fmt.Sprint(d.Object["spec"]), s.only) // by its name, or its image
			})
		}
		all = append(all, found...)
	}
	return all, nil
}

// read reads an object, or all objects of a list, 500 at a time.
func (a *apis) read(ctx context.Context, path, kind string) ([]convert.Document, error) {
	var all []convert.Document
	for token := ""; ; {
		var object map[string]any
		request := a.core.Get().AbsPath(path).Param("limit", "500").Param("continue", token)
		if err := getJSON(ctx, request, &object); err != nil {
			return nil, err
		}
		items, isList := object["items"].([]any)
		if !isList {
			items = []any{object}
		}
		for _, item := range items {
			if one, isObject := item.(map[string]any); isObject {
				one["kind"] = kind
				all = append(all, convert.Document{From: "the cluster", Object: one})
			}
		}
		metadata, _ := object["metadata"].(map[string]any)
		if token, _ = metadata["continue"].(string); token == "" || !isList {
			return all, nil
		}
	}
}
