package main

import (
	"cmp"
	"context"
	"fmt"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/manager/admit"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

// batchOwners looks up the batch pods of workloads.
type batchOwners struct {
	client rest.Interface
	read   map[string]map[string]string // a batch pod by its owner, by namespace
}

// pod returns a batch pod of a workload; "": it has none.
func (b *batchOwners) pod(ctx context.Context, namespace, kind, name string) (string, error) {
	if b.read[namespace] == nil {
		pods, err := batchPods(ctx, b.client, namespace)
		if err != nil {
			return "", err
		}
		b.read[namespace] = pods
	}
	return b.read[namespace][fmt.Sprintf("%s/%s/%s", kind, namespace, name)], nil
}

// scalers finds autoscalers that a batch pod's lack of native requests disturbs.
func (d *doctor) scalers(ctx context.Context, client rest.Interface) error {
	batch := &batchOwners{client, map[string]map[string]string{}}
	if err := d.horizontal(ctx, batch); err != nil {
		return err
	}
	return d.vertical(ctx, batch)
}

// horizontal finds HorizontalPodAutoscalers that do not scale batch pods, or scale them against their work.
func (d *doctor) horizontal(ctx context.Context, batch *batchOwners) error {
	var all autoscalingv2.HorizontalPodAutoscalerList
	if err := listPath(ctx, batch.client, "/apis/autoscaling/v2/horizontalpodautoscalers", &all); err != nil {
		return err
	}
	failing := false
	for _, s := range all.Items {
		percent, amount := resourceMetrics(&s)
		if percent == "" && amount == "" {
			continue
		}
		target := s.Spec.ScaleTargetRef
		pod, err := batch.pod(ctx, s.Namespace, target.Kind, target.Name)
		if err != nil {
			return err
		}
		if pod == "" {
			continue
		}
		const fix = "use a metric of the work that waits, or a target of type AverageValue (docs/frameworks.md)"
		who := fmt.Sprintf("HorizontalPodAutoscaler %s/%s scales %s %s, which has batch pods such as %s", s.Namespace, s.Name,
			target.Kind, target.Name, pod)
		if percent != "" {
			failing = true
			d.bad(fix, "%s, by utilization of %s. Batch pods request no %s, so it does not scale", who, percent, percent)
			continue
		}
		d.note("use a metric of the work that waits (docs/frameworks.md)",
			"%s, by the amount of %s that they use. They use less when online pods need it, so it removes pods that have work",
			who, amount)
	}
	if !failing {
		d.ok("no HorizontalPodAutoscaler scales batch pods by a percentage of what they request")
	}
	return nil
}

// verticalList has the fields that are read of VerticalPodAutoscalers (autoscaling.k8s.io/v1).
type verticalList struct {
	Items []struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
		Spec     struct {
			TargetRef    autoscalingv2.CrossVersionObjectReference `json:"targetRef"`
			UpdatePolicy struct {
				UpdateMode string `json:"updateMode"`
			} `json:"updatePolicy"`
		} `json:"spec"`
	} `json:"items"`
}

// vertical finds VerticalPodAutoscalers that evict batch pods. Their updater takes a request of nothing for one outside
// of the recommended range.
func (d *doctor) vertical(ctx context.Context, batch *batchOwners) error {
	var all verticalList
	switch err := listPath(ctx, batch.client, "/apis/autoscaling.k8s.io/v1/verticalpodautoscalers", &all); {
	case apierrors.IsNotFound(err):
		return nil // the cluster has no such autoscaler
	case err != nil:
		return err
	}
	evicting := false
	for _, v := range all.Items {
		mode := cmp.Or(v.Spec.UpdatePolicy.UpdateMode, "Auto")
		if mode != "Auto" && mode != "Recreate" && mode != "InPlaceOrRecreate" {
			continue
		}
		namespace, target := v.Metadata.Namespace, &v.Spec.TargetRef
		pod, err := batch.pod(ctx, namespace, target.Kind, target.Name)
		if err != nil {
			return err
		}
		if pod == "" {
			continue
		}
		evicting = true
		d.bad("set its updateMode to Off or Initial (docs/size.md)",
			"VerticalPodAutoscaler %s/%s updates %s %s in mode %s, which has batch pods such as %s. "+
				"Batch pods request no cpu and no memory, so it evicts them again and again",
			namespace, v.Metadata.Name, target.Kind, target.Name, mode, pod)
	}
	if !evicting {
		d.ok("no VerticalPodAutoscaler evicts batch pods")
	}
	return nil
}

// resourceMetrics returns the first of CPU and memory by which an autoscaler scales as a percentage of requests, and
// CPU if it does so by amount; "": none.
func resourceMetrics(s *autoscalingv2.HorizontalPodAutoscaler) (percent, amount corev1.ResourceName) {
	for _, m := range s.Spec.Metrics {
		var name corev1.ResourceName
		var target autoscalingv2.MetricTarget
		switch {
		case m.Resource != nil:
			name, target = m.Resource.Name, m.Resource.Target
		case m.ContainerResource != nil:
			name, target = m.ContainerResource.Name, m.ContainerResource.Target
		}
		switch {
		case name != corev1.ResourceCPU && name != corev1.ResourceMemory:
		case target.Type == autoscalingv2.UtilizationMetricType && percent == "":
			percent = name
		case target.Type == autoscalingv2.AverageValueMetricType && name == corev1.ResourceCPU:
			amount = name
		}
	}
	return percent, amount
}

// batchPods returns a batch pod of each of the owners in a namespace, by owner as [kube.Owner] names it. A pod that
// passed the webhook while nothing was sold requests native resources, and is scaled as ever.
func batchPods(ctx context.Context, client rest.Interface, namespace string) (map[string]string, error) {
	byOwner := map[string]string{}
	for _, label := range []string{v1alpha1.LabelQoS, v1alpha1.LabelQoSAlias} {
		var pods corev1.PodList
		err := client.Get().Namespace(namespace).Resource("pods").Param("labelSelector", label+"=BE").Do(ctx).Into(&pods)
		if err != nil {
			return nil, fmt.Errorf("listing pods in namespace %s: %w", namespace, err)
		}
		for _, p := range pods.Items {
			if admit.RequestsNative(&p) {
				continue
			}
			byOwner[kube.Owner(&p)] = p.Name
			if by := metav1.GetControllerOfNoCopy(&p); by != nil { // a ReplicaSet can be scaled too
				byOwner[fmt.Sprintf("%s/%s/%s", by.Kind, namespace, by.Name)] = p.Name
			}
		}
	}
	return byOwner, nil
}
