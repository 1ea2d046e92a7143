package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
)

// Conditions writes the condition of pods that shows their CPUs.
type Conditions struct {
	client *rest.RESTClient
}

// NewConditions returns a writer.
func NewConditions(client *rest.RESTClient) *Conditions { return &Conditions{client: client} }

// Set sets the condition of a pod, or removes it for the zero value. It changes nothing else of the pod's status. A
// deleted pod, or another pod of the same name, is no error.
func (c *Conditions) Set(ctx context.Context, condition model.Condition) error {
	entry := map[string]any{"type": v1alpha1.ConditionCPUSet}
	if condition.PodCondition == (model.PodCondition{}) {
		entry["$patch"] = "delete"
	} else {
		status := "False"
		if condition.Met {
			status = "True"
		}
		entry["status"], entry["reason"], entry["message"] = status, condition.Reason, condition.Message
		entry["lastTransitionTime"] = time.Now().UTC().Format(time.RFC3339)
	}
	return Send(ctx, c.client.Patch(types.StrategicMergePatchType).
		Namespace(condition.Namespace).Resource("pods").Name(condition.Name).SubResource("status"),
		fmt.Sprintf("setting condition %s of %s/%s", v1alpha1.ConditionCPUSet, condition.Namespace, condition.Name),
		map[string]any{
			"metadata": map[string]any{"uid": condition.UID}, // another pod of the same name is a conflict
			"status":   map[string]any{"conditions": []any{entry}},
		})
}

// Send sends a patch with a document. It is no error if the object is gone, is not the one that the document names by
// its UID, or is not of the version that it names. The error begins with what is being done.
func Send(ctx context.Context, patch *rest.Request, doing string, document any) error {
	err := send(ctx, patch, doing, document)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// send sends a patch with a document. The error begins with what is being done.
func send(ctx context.Context, patch *rest.Request, doing string, document any) error {
	body, err := json.Marshal(document)
	if err == nil {
		err = patch.Body(body).Do(ctx).Error()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return nil
}
