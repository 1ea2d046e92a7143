package kube

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/waterline-io/waterline/api/v1alpha1"
)

// ApplyReportCondition sets one condition of a node's report by server-side apply, without naming any other field. Each
// owner has one condition, because the API server removes conditions that their owner does not name.
func ApplyReportCondition(ctx context.Context, custom rest.Interface, node, owner string, c metav1.Condition) error {
	c.LastTransitionTime = metav1.Now()
	return send(ctx, custom.Patch(types.ApplyPatchType).Resource("nodereports").Name(node).SubResource("status").
		Param("fieldManager", owner).Param("force", "true"),
		fmt.Sprintf("setting condition %s of the report of node %s", c.Type, node), map[string]any{
			"apiVersion": v1alpha1.GroupVersion, "kind": "NodeReport", "metadata": map[string]any{"name": node},
			"status": map[string]any{"conditions": []metav1.Condition{c}},
		})
}
