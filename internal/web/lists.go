package web

import (
	"fmt"
	"maps"
	"net/http"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/manager/cache"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

// me says who the caller is and what the caller sees, so that pages need not try.
func (s *Server) me(r *http.Request, c *caller) (any, error) {
	nodes, err := c.may(r.Context(), listNodes)
	if err != nil {
		return nil, err
	}
	policies, err := c.may(r.Context(), listPolicies)
	if err != nil {
		return nil, err
	}
	var pools []string
	for _, namespace := range s.o.PoolNamespaces {
		switch granted, err := c.may(r.Context(), listPools.in(namespace)); {
		case err != nil:
			return nil, err
		case granted:
			pools = append(pools, namespace)
		}
	}
	return map[string]any{
		"user": c.name(), "nodes": nodes, "policies": policies, "pools": pools, "poolNamespaces": len(s.o.PoolNamespaces),
		"version": s.o.Version,
	}, nil
}

// condition is a condition as pages show it.
type condition struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
	Since   int64  `json:"since"`
}

func conditions(from []metav1.Condition) []condition {
	to := []condition{}
	for i := range from {
		c := &from[i]
		to = append(to, condition{c.Type, string(c.Status), c.Reason, c.Message, c.LastTransitionTime.Unix()})
	}
	return to
}

// listPolicies answers with the policies: what they say, what they govern, and how they are.
func (s *Server) listPolicies(r *http.Request, c *caller) (any, error) {
	if err := c.must(r.Context(), listPolicies); err != nil {
		return nil, err
	}
	all := []map[string]any{}
	for _, p := range sorted(s.policies) {
		text, err := yaml.Marshal(p.Spec)
		if err != nil {
			return nil, fmt.Errorf("encoding policy %s: %w", p.Name, err)
		}
		all = append(all, map[string]any{
			"name": p.Name, "spec": p.Spec, "text": string(text), "nodes": p.Status.Nodes,
			"slippedPods": p.Status.SlippedPods, "conditions": conditions(p.Status.Conditions),
			"created": p.CreationTimestamp.Unix(), "paused": kube.Paused(&p), "generation": p.Generation,
			"observed": p.Status.ObservedGeneration,
		})
	}
	return map[string]any{"policies": all}, nil
}

// listPools answers with the worker pools of the namespaces in which the caller may list them.
func (s *Server) listPools(r *http.Request, c *caller) (any, error) {
	all, hidden := []map[string]any{}, 0
	for _, namespace := range s.o.PoolNamespaces {
		granted, err := c.may(r.Context(), listPools.in(namespace))
		if err != nil {
			return nil, err
		}
		if !granted {
			hidden++
			continue
		}
		for _, p := range sorted(s.pools[namespace]) {
			all = append(all, map[string]any{
				"namespace": p.Namespace, "name": p.Name, "engine": engine(&p.Spec), "status": p.Status,
				"conditions": conditions(p.Status.Conditions), "windows": p.Spec.Windows,
			})
		}
	}
	return map[string]any{"pools": all, "namespaces": len(s.o.PoolNamespaces), "hidden": hidden}, nil
}

// engine returns the name of the engine whose workers a pool runs.
func engine(s *v1alpha1.WorkerPoolSpec) string {
	switch {
	case s.YARN != nil:
		return "YARN"
	case s.Trino != nil:
		return "Trino"
	}
	return "Impala"
}

// sorted returns the rows of a table in the order of their names.
func sorted[T any](t *cache.Table[T]) []T {
	rows, _ := t.All()
	var all []T
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		all = append(all, rows[name])
	}
	return all
}
