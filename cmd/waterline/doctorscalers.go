package main

import (
	"context"
	"encoding/json"
	"fmt"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/manager/admit"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

// scalers finds HorizontalPodAutoscalers that a batch pod's lack of native requests disturbs.
func (d *doctor) scalers(ctx context.Context, client rest.Interface) error {
	text, err := client.Get().AbsPath("/apis/autoscaling/v2/horizontalpodautoscalers").SetHeader("Accept",
		"application/json").Do(ctx).Raw()
	if err != nil {
		return fmt.Errorf("listing horizontalpodautoscalers: %w", err)
	}
	var all autoscalingv2.HorizontalPodAutoscalerList
	if err := json.Unmarshal(text, &all); err != nil {
		return fmt.Errorf("reading horizontalpodautoscalers: %w", err)
	}
	batch := map[string]map[string]string{} // a batch pod by its owner, by namespace
	failing := false
	for i := range all.Items {
		s := &all.Items[i]
		percent, amount := resourceMetrics(s)
		if percent == "" && amount == "" {
			continue
		}
		if batch[s.Namespace] == nil {
			if batch[s.Namespace], err = batchPods(ctx, client, s.Namespace); err != nil {
				return err
			}
		}
		target := s.Spec.ScaleTargetRef
		pod := batch[s.Namespace][fmt.Sprintf("%s/%s/%s", target.Kind, s.Namespace, target.Name)]
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
		for i := range pods.Items {
			p := &pods.Items[i]
			if admit.RequestsNative(p) {
				continue
			}
			byOwner[kube.Owner(p)] = p.Name
			if by := metav1.GetControllerOfNoCopy(p); by != nil { // a ReplicaSet can be scaled too
				byOwner[fmt.Sprintf("%s/%s/%s", by.Kind, namespace, by.Name)] = p.Name
			}
		}
	}
	return byOwner, nil
}
