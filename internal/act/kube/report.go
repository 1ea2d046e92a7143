package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
)

// Reports writes the NodeReport of this agent's own node.
type Reports struct {
	client   *rest.RESTClient
	nodeName string
}

// NewReports returns a writer for the agent of this node. The client is one for Waterline's own API group.
func NewReports(client *rest.RESTClient, nodeName string) *Reports {
	return &Reports{client: client, nodeName: nodeName}
}

// Write brings the report up to date, and makes it if there is none; it goes with the Node of this UID. It leaves the
// conditions alone, which are the manager's.
func (r *Reports) Write(ctx context.Context, uid string, report model.Report) error {
	status := map[string]any{
		"policy": report.Policy, "policyGeneration": report.Generation, "mode": report.Mode,
		"selling": orNull(report.Selling), "unsupported": report.Unsupported, "faults": shortened(report.Faults),
		"cpu": nil, "memory": nil, "pressure": nil, "cpuSets": nil, "hot": orNull(report.Hot),
		"harmSignal": orNull(report.Harm), "eviction": nil, "unrestored": orNull(report.Unrestored),
		"throttledCPU": nil, "starved": shortened(report.Starved),
		"changed": time.Now().UTC().Format(time.RFC3339),
	}
	if e := report.Evict; e != nil {
		message := e.Reason.Details()
		status["eviction"] = v1alpha1.EvictionRequest{
			Namespace: e.Namespace, Name: e.Name, UID: e.UID, Reason: string(e.Reason.Code),
			Message: message[:min(len(message), 1024)], Renewed: metav1.NowMicro(),
		}
	}
	if s := report.Slack; s != nil {
		status["cpu"] = resourceReport(&s.CPU, &report.OtherCPU,
			func(v int64) resource.Quantity { return *resource.NewMilliQuantity(v, resource.DecimalSI) })
		status["memory"] = resourceReport(&s.Memory, &report.OtherMemory,
			func(v int64) resource.Quantity { return *resource.NewQuantity(v, resource.BinarySI) })
	}
	if p := report.Pressure; p != nil {
		status["pressure"] = v1alpha1.PressureReport{CPU: int32(p.CPU), Memory: int32(p.Memory), IO: int32(p.IO)}
	}
	if milli := report.Throttled; milli != nil {
		status["throttledCPU"] = resource.NewMilliQuantity(*milli, resource.DecimalSI)
	}
	if room := report.CPUs; room != nil {
		status["cpuSets"] = cpuSetReport(room)
	}
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return fmt.Errorf("encoding the report of node %s: %w", r.nodeName, err)
	}
	send := func() error {
		return r.client.Patch(types.MergePatchType).Resource("nodereports").Name(r.nodeName).SubResource("status").
			Body(patch).Do(ctx).Error()
	}
	if err = send(); apierrors.IsNotFound(err) {
		if err = CreateReport(ctx, r.client, r.nodeName, uid); err == nil {
			err = send()
		}
	}
	if err != nil {
		return fmt.Errorf("writing the report of node %s: %w", r.nodeName, err)
	}
	return nil
}

// orNull returns a value; for the zero value null, which removes the field.
func orNull[T comparable](value T) any {
	if value == *new(T) {
		return nil
	}
	return value
}

// shortened returns texts with the length that the API allows.
func shortened(texts []string) (all []string) {
	for _, text := range texts {
		all = append(all, text[:min(len(text), 1024)])
	}
	return all
}

// CreateReport makes the report of a node, which goes with the Node of this UID. A report that is there already is no
// error. The client is one for Waterline's own API group.
func CreateReport(ctx context.Context, client rest.Interface, node, uid string) error {
	err := client.Post().Resource("nodereports").Body(&v1alpha1.NodeReport{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion, Kind: "NodeReport"},
		ObjectMeta: metav1.ObjectMeta{
			Name:            node,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node, UID: types.UID(uid)}},
		},
	}).Do(ctx).Error()
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

func resourceReport(
	a *model.Account, u *model.OtherDays, quantity func(int64) resource.Quantity,
) *v1alpha1.ResourceReport {
	var other *v1alpha1.AheadQuantities
	if u.FourHours > 0 && u.EightHours > 0 {
		other = &v1alpha1.AheadQuantities{
			FourHours: quantity(min(u.FourHours, a.Capacity)), EightHours: quantity(min(u.EightHours, a.Capacity)),
		}
	}
	batch := quantity(a.Use.Batch)
	tiers := func(t model.TierAmounts) v1alpha1.TierQuantities {
		return v1alpha1.TierQuantities{Mid: quantity(t.Mid), Batch: quantity(t.Batch)}
	}
	return &v1alpha1.ResourceReport{
		Offer:     tiers(a.Offer),
		Allowance: quantity(a.Allow),
		Capacity:  quantity(a.Capacity),
		Ceiling:   quantity(a.Ceiling),
		System:    quantity(max(a.Use.System, a.Reserved) + a.Use.Daemons),
		Online:    quantity(a.Use.Online),
		Batch:     &batch,
		Peaks: v1alpha1.PeakQuantities{
			Hour: quantity(min(a.Peaks[model.Hour].Value, a.Capacity)), Day: quantity(min(a.Peaks[model.Day].Value, a.Capacity)),
			Learning: a.Peaks[model.Hour].Learning,
		},
		OtherDays: other,
		Bound:     tiers(a.Bound),
		Reason:    string(a.Reason.Code),
	}
}
