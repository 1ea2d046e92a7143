package kube

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
)

// Publisher writes batch resources into the status of one Node: the agent for its own node, the manager for a node
// whose agent is gone.
type Publisher struct {
	client   rest.Interface
	nodeName string
}

// NewPublisher returns a writer for this node.
func NewPublisher(client rest.Interface, nodeName string) *Publisher {
	return &Publisher{client: client, nodeName: nodeName}
}

// Write updates the resources of the Node with this UID, in capacity and allocatable alike, in one patch that contains
// no other key but the annotation that records them. Another Node of the same name is a conflict.
func (p *Publisher) Write(ctx context.Context, uid string, stands, should []model.Published) error {
	amounts, metadata := map[string]any{}, map[string]any{"uid": uid}
	for _, r := range stands {
		amounts[resourceName(r.NodeResource)] = nil
	}
	for _, r := range should {
		amounts[resourceName(r.NodeResource)] = strconv.FormatInt(r.Amount, 10)
	}
	if before, now := record(stands), record(should); now != "" {
		metadata["annotations"] = map[string]any{v1alpha1.AnnotationPublished: now}
	} else if before != "" {
		metadata["annotations"] = map[string]any{v1alpha1.AnnotationPublished: nil}
	}
	return send(ctx, p.client.Patch(types.MergePatchType).Resource("nodes").Name(p.nodeName).SubResource("status"),
		fmt.Sprintf("publishing what node %s sells", p.nodeName), map[string]any{
			"metadata": metadata,
			"status":   map[string]any{"capacity": amounts, "allocatable": amounts},
		})
}

// record returns the value of the annotation that claims resources under Koordinator's names.
func record(published []model.Published) string {
	var names []string
	for _, r := range published {
		if r.Koordinator {
			names = append(names, resourceName(r.NodeResource)+"="+strconv.FormatInt(r.Amount, 10))
		}
	}
	return strings.Join(names, ",")
}

func resourceName(r model.NodeResource) string {
	return v1alpha1.SlackResource(string(r.Tier), r.Memory, r.Koordinator)
}
