// Package uninstall restores all nodes before Waterline is uninstalled.
package uninstall

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/manager/fleet"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

// Farewell restores all nodes before Waterline is uninstalled.
type Farewell struct {
	Core, Custom rest.Interface // of the core API group and of Waterline's
	Namespace    string         // of the agents
	Ignore       []string       // names of nodes that are not waited for, such as dead ones
	Log          *slog.Logger
}

// Run sets every policy to mode Disabled, and waits until each node has restored what Waterline wrote there and sells
// nothing any more. If the context ends before, the error names each node that is not restored, and why. Policies stay
// Disabled then. The log names each ignored node on which something is left.
//
// While there are worker pools, it changes nothing and returns an error: without the manager, nobody drains their
// workers.
func (f *Farewell) Run(ctx context.Context) error {
	if err := f.poolsGone(ctx); err != nil {
		return err
	}
	generations, err := f.disable(ctx)
	if err != nil {
		return err
	}
	left := []string{"nothing was looked at yet"}
	for {
		now, ignored, err := f.unrestored(ctx, generations)
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("not restored:\n  %s", strings.Join(left, "\n  "))
		case err != nil:
			f.Log.Warn("looking whether nodes are restored; trying again", "err", err)
		case len(now) == 0:
			for _, node := range ignored {
				f.Log.Warn("ignored: "+node, "what to do", "run waterline restore there if the node returns without a reboot")
			}
			f.Log.Info("every node is restored", "ignored", len(ignored))
			return nil
		case !slices.Equal(left, now):
			f.Log.Info("waiting for nodes to be restored", "nodes", len(now), "first", now[0])
		}
		if err == nil {
			left = now
		}
		select {
		case <-ctx.Done():
		case <-time.After(2 * time.Second):
		}
	}
}

// poolsGone returns an error that names the worker pools, if there are any.
func (f *Farewell) poolsGone(ctx context.Context) error {
	var all v1alpha1.WorkerPoolList
	err := f.Custom.Get().Resource("workerpools").Do(ctx).Into(&all)
	if err != nil && !apierrors.IsNotFound(err) { // without their definition there are none
		return fmt.Errorf("listing worker pools: %w", err)
	}
	var names []string
	for _, p := range all.Items {
		names = append(names, p.Namespace+"/"+p.Name)
	}
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("there are worker pools, whose workers must drain first: %s; delete them with "+
		"kubectl delete workerpools --all --all-namespaces, and try again", strings.Join(names, ", "))
}

// disable sets every policy to mode Disabled, and returns the generations of the policies by name.
func (f *Farewell) disable(ctx context.Context) (map[string]int64, error) {
	var policies v1alpha1.ColocationPolicyList
	if err := f.Custom.Get().Resource("colocationpolicies").Do(ctx).Into(&policies); err != nil {
		return nil, fmt.Errorf("listing policies: %w", err)
	}
	generations := map[string]int64{}
	var errs []error
	for i := range policies.Items {
		p := &policies.Items[i]
		if p.Spec.Mode != v1alpha1.ModeDisabled {
			patch := f.Custom.Patch(types.MergePatchType).Resource("colocationpolicies").Name(p.Name).
				Body([]byte(`{"spec":{"mode":"Disabled"}}`))
			if err := patch.Do(ctx).Into(p); err != nil {
				errs = append(errs, fmt.Errorf("disabling policy %s: %w", p.Name, err))
			}
		}
		generations[p.Name] = p.Generation
	}
	return generations, errors.Join(errs...)
}

// unrestored returns a line for each node on which something of Waterline is left, and for each of those that are
// ignored. An ignored name without a node has one too: it may be a mistake.
func (f *Farewell) unrestored(ctx context.Context, generations map[string]int64) (left, ignored []string, err error) {
	var nodes corev1.NodeList
	var agents corev1.PodList
	var reports v1alpha1.NodeReportList
	err = errors.Join(
		f.Core.Get().Resource("nodes").Do(ctx).Into(&nodes),
		f.Core.Get().Namespace(f.Namespace).Resource("pods").Param("labelSelector", fleet.AgentLabel).Do(ctx).Into(&agents),
		f.Custom.Get().Resource("nodereports").Do(ctx).Into(&reports),
	)
	if err != nil {
		return nil, nil, err
	}
	ready := map[string]bool{}
	for i := range agents.Items {
		a := fleet.AgentOf(&agents.Items[i])
		ready[a.Node] = ready[a.Node] || a.Ready
	}
	status := map[string]*v1alpha1.NodeReportStatus{}
	for i := range reports.Items {
		status[reports.Items[i].Name] = &reports.Items[i].Status
	}
	unknown := slices.Clone(f.Ignore)
	for i := range nodes.Items {
		name := nodes.Items[i].Name
		unknown = slices.DeleteFunc(unknown, func(ignore string) bool { return ignore == name })
		s, reported := status[name]
		_, runs := ready[name]
		if !reported && !runs {
			continue // no agent was ever there
		}
		// The condition of an agent's container stays true when its kubelet is lost.
		alive := ready[name] && nodeReady(&nodes.Items[i])
		why := f.why(&nodes.Items[i], s, alive, generations)
		switch {
		case why == "":
		case slices.Contains(f.Ignore, name):
			ignored = append(ignored, "node "+name+": "+why)
		default:
			left = append(left, "node "+name+": "+why)
		}
	}
	for _, name := range unknown {
		ignored = append(ignored, "node "+name+": there is no such node")
	}
	return left, ignored, nil
}

// nodeReady reports whether the kubelet of a node is well, as far as Kubernetes knows.
func nodeReady(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// why returns what is left of Waterline on a node; "": nothing. s is nil without a report.
func (f *Farewell) why(n *corev1.Node, s *v1alpha1.NodeReportStatus, ready bool, generations map[string]int64) string {
	switch {
	case s == nil:
		return "its agent has not reported yet"
	// An old report may be from a time when the agent only observed.
	case !ready && (s.Mode == v1alpha1.ModeEnforce || s.Unrestored > 0 ||
		s.Policy != "" && s.PolicyGeneration+1 < generations[s.Policy]):
		return "its agent is not ready; run waterline restore on the node"
	case s.Mode == v1alpha1.ModeEnforce || ready && s.Policy != "" && s.PolicyGeneration != generations[s.Policy]:
		return "its agent does not follow the change of its policy yet"
	case s.Unrestored > 0:
		return fmt.Sprintf("%d files are not restored; the log of its agent and waterline explain say why", s.Unrestored)
	}
	for _, published := range kube.NodeOf(n).Published {
		if !published.Koordinator {
			return "it still has batch resources"
		}
	}
	return ""
}
