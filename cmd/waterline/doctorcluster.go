package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/manager/admit"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

func doctorClusterCommand() *cobra.Command {
	var kubeconfig string
	c := &cobra.Command{
		Use:   "cluster",
		Short: "Find namespaces in which no batch pod can be created",
		Long: `Find namespaces in which the API server refuses every batch pod, because a LimitRange or a ResourceQuota requires pods
ask for CPU or memory, for which batch pods do not ask. It looks at namespaces labelled waterline.io/colocation=enabled
and at those that have pods labelled waterline.io/qos=BE or koordinator.sh/qosClass=BE.

It runs anywhere, and needs the rights to list namespaces, pods, limitranges and resourcequotas.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			config, err := findCluster(kubeconfig)
			if err != nil {
				return err
			}
			client, err := kube.NewClient(config)
			if err != nil {
				return err
			}
			d := doctor{out: c.OutOrStdout()}
			if err := d.namespaces(c.Context(), client); err != nil {
				return err
			}
			return d.result()
		},
	}
	kubeconfigFlag(c, &kubeconfig)
	return c
}

// obstacle is something for which the API server refuses every batch pod in a namespace.
type obstacle struct{ namespace, because, fix string }

// namespaces finds those where batch pods are wanted and cannot be created.
func (d *doctor) namespaces(ctx context.Context, client rest.Interface) error {
	obstacles, err := findObstacles(ctx, client)
	if err != nil {
		return err
	}
	wanted := map[string]string{} // why, by namespace; "": they are not
	for _, o := range obstacles {
		if _, known := wanted[o.namespace]; known {
			continue
		}
		if wanted[o.namespace], err = wantsBatch(ctx, client, o.namespace); err != nil {
			return err
		}
	}
	for _, o := range obstacles {
		if why := wanted[o.namespace]; why != "" {
			d.bad("namespace %s, %s: %s. No batch pod can be created there: %s", o.namespace, why, o.because, o.fix)
		}
	}
	if d.failed == 0 {
		d.ok("no LimitRange and no ResourceQuota blocks batch pods in a namespace that admits them")
	}
	return nil
}

// findObstacles returns the obstacles of all namespaces, in their order.
func findObstacles(ctx context.Context, client rest.Interface) ([]obstacle, error) {
	var limits corev1.LimitRangeList
	var quotas corev1.ResourceQuotaList
	for resource, into := range map[string]runtime.Object{"limitranges": &limits, "resourcequotas": &quotas} {
		if err := client.Get().Resource(resource).Do(ctx).Into(into); err != nil {
			return nil, fmt.Errorf("listing %s: %w", resource, err)
		}
	}
	var all []obstacle
	for i := range limits.Items {
		l := &limits.Items[i]
		if found := admit.LimitRangeObstacles(l); len(found) > 0 {
			all = append(all, obstacle{l.Namespace, fmt.Sprintf("LimitRange %s has %s", l.Name, strings.Join(found, ", ")),
				"take bounds and ratios of cpu and memory out of it; defaults may stay"})
		}
	}
	for i := range quotas.Items {
		q := &quotas.Items[i]
		if found := admit.QuotaObstacles(q); len(found) > 0 {
			all = append(all, obstacle{q.Namespace, fmt.Sprintf("ResourceQuota %s counts %s", q.Name, strings.Join(found, ", ")),
				"leave them out by its scopeSelector, PriorityClass NotIn " + v1alpha1.PriorityClassBatch + ", " +
					v1alpha1.PriorityClassMid})
		}
	}
	slices.SortStableFunc(all, func(a, b obstacle) int { return cmp.Compare(a.namespace, b.namespace) })
	return all, nil
}

// wantsBatch returns why a namespace should admit batch pods, "" if it need not.
func wantsBatch(ctx context.Context, client rest.Interface, name string) (string, error) {
	var namespace corev1.Namespace
	if err := client.Get().Resource("namespaces").Name(name).Do(ctx).Into(&namespace); err != nil {
		return "", fmt.Errorf("looking up namespace %s: %w", name, err)
	}
	if namespace.Labels[v1alpha1.LabelColocation] == v1alpha1.ColocationEnabled {
		return "which opted in", nil
	}
	for _, label := range []string{v1alpha1.LabelQoS, v1alpha1.LabelQoSAlias} {
		var pods corev1.PodList
		err := client.Get().Namespace(name).Resource("pods").Param("labelSelector", label+"=BE").Param("limit",
			"1").Do(ctx).Into(&pods)
		if err != nil {
			return "", fmt.Errorf("listing pods in namespace %s: %w", name, err)
		}
		if len(pods.Items) > 0 {
			return fmt.Sprintf("which has batch pods such as %s", pods.Items[0].Name), nil
		}
	}
	return "", nil
}
