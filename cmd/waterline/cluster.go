package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

// reach is how a cluster is found: flags as kubectl has them.
type reach struct {
	kubeconfig string
	context    string
	namespace  string
	timeout    time.Duration // of each request; 0: none
}

// flags adds the flags that name a cluster.
func (r *reach) flags(c *cobra.Command) {
	c.Flags().StringVar(&r.kubeconfig, "kubeconfig", "", "kubeconfig file (default $KUBECONFIG, then ~/.kube/config)")
	c.Flags().StringVar(&r.context, "context", "", "context in the kubeconfig (default its current one)")
	_ = c.RegisterFlagCompletionFunc("context",
		func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			raw, err := r.loader().RawConfig()
			if err != nil {
				return nil, cobra.ShellCompDirectiveError
			}
			return slices.Sorted(maps.Keys(raw.Contexts)), cobra.ShellCompDirectiveNoFileComp
		})
}

// namespaced adds the flag for a namespace too.
func (r *reach) namespaced(c *cobra.Command) {
	r.flags(c)
	c.Flags().StringVarP(&r.namespace, "namespace", "n", "", "namespace (default that of the context)")
	_ = c.RegisterFlagCompletionFunc("namespace", r.completion(func(ctx context.Context, a *apis) ([]string, error) {
		return names(ctx, a.core, "namespaces", "", &corev1.NamespaceList{})
	}))
}

func (r *reach) loader() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = r.kubeconfig
	overrides := &clientcmd.ConfigOverrides{CurrentContext: r.context}
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
}

// in returns the namespace: the one of the flag, else of the context, else default.
func (r *reach) in() string {
	ofContext, _, _ := r.loader().Namespace() // "" with an error
	return cmp.Or(r.namespace, ofContext, corev1.NamespaceDefault)
}

// apis are the clients for what commands read.
type apis struct {
	config *rest.Config
	core   *rest.RESTClient
	custom *rest.RESTClient // of Waterline's own API group

	finding sync.Once
	found   string // namespace of Waterline's own pods
}

// home returns the namespace of Waterline's own pods: that of the label on a policy of the chart, else that of the
// agents' ClusterRoleBinding, else the usual one. Only what no tenant can write counts: a tenant's pod with the labels
// of a manager would get the token of the user who opens the dashboard.
func (a *apis) home(ctx context.Context) string {
	a.finding.Do(func() {
		a.found = cmp.Or(a.homeOfPolicies(ctx), a.homeOfBinding(ctx), v1alpha1.Namespace)
	})
	return a.found
}

func (a *apis) homeOfPolicies(ctx context.Context) string {
	var policies v1alpha1.ColocationPolicyList
	err := a.custom.Get().Resource("colocationpolicies").Param("labelSelector", v1alpha1.LabelNamespace).Do(ctx).
		Into(&policies)
	if err != nil || len(policies.Items) == 0 {
		return ""
	}
	return policies.Items[0].Labels[v1alpha1.LabelNamespace]
}

func (a *apis) homeOfBinding(ctx context.Context) string {
	var binding struct {
		Subjects []struct{ Namespace string }
	}
	request := a.core.Get().AbsPath("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/" + agentName)
	if getJSON(ctx, request, &binding) != nil || len(binding.Subjects) == 0 {
		return ""
	}
	return binding.Subjects[0].Namespace
}

// connect finds the cluster as kubectl does, and makes the clients.
func (r *reach) connect() (*apis, error) {
	config, err := r.loader().ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("finding the cluster: %w", err)
	}
	config.QPS, config.Burst, config.Timeout = 50, 100, r.timeout
	return connectTo(config)
}

// connected returns what runs a command with the clients of its cluster.
func (r *reach) connected(run func(c *cobra.Command, a *apis) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, _ []string) error {
		a, err := r.connect()
		if err != nil {
			return err
		}
		return run(c, a)
	}
}

func connectTo(config *rest.Config) (*apis, error) {
	core, err := kube.NewClient(config)
	if err != nil {
		return nil, err
	}
	custom, err := kube.NewCustomClient(config)
	if err != nil {
		return nil, err
	}
	return &apis{config: config, core: core, custom: custom}, nil
}

// list lists objects, all pages together. In is the namespace; "": all, or the objects have none.
func list(ctx context.Context, client rest.Interface, resource, in string, into runtime.Object) error {
	if err := client.Get().Namespace(in).Resource(resource).Do(ctx).Into(into); err != nil {
		return fmt.Errorf("listing %s: %w", resource, err)
	}
	return nil
}

// listPath lists objects of a group that the client does not know, by their path.
func listPath(ctx context.Context, client rest.Interface, at string, into any) error {
	if err := getJSON(ctx, client.Get().AbsPath(at), into); err != nil {
		return fmt.Errorf("listing %s: %w", path.Base(at), err)
	}
	return nil
}

// getJSON sends a request, and decodes the answer as JSON, whether the client knows its type or not.
func getJSON(ctx context.Context, request *rest.Request, into any) error {
	text, err := request.SetHeader("Accept", runtime.ContentTypeJSON).Do(ctx).Raw()
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// completion completes names of objects. A cluster that does not answer within three seconds completes nothing.
func (r *reach) completion(from func(ctx context.Context, a *apis) ([]string, error)) cobra.CompletionFunc {
	return func(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(c.Context(), 3*time.Second)
		defer cancel()
		a, err := r.connect()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		found, err := from(ctx, a)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return found, cobra.ShellCompDirectiveNoFileComp
	}
}

// names lists the names of objects, into a list of their kind.
func names(ctx context.Context, client rest.Interface, resource, in string, into runtime.Object) ([]string, error) {
	if err := list(ctx, client, resource, in, into); err != nil {
		return nil, err
	}
	var all []string
	err := meta.EachListItem(into, func(o runtime.Object) error {
		about, err := meta.Accessor(o)
		if err == nil {
			all = append(all, about.GetName())
		}
		return err
	})
	return all, err
}

func nodeNames(ctx context.Context, a *apis) ([]string, error) {
	return names(ctx, a.core, "nodes", "", &corev1.NodeList{})
}

func namesOf[T any](items []T, name func(*T) string) []string {
	all := make([]string, len(items))
	for i := range items {
		all[i] = name(&items[i])
	}
	return all
}
