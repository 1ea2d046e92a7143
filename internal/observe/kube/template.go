package kube

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/component-helpers/resource"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
)

// Worker returns the container of a pod, or of a pool's template, that runs the worker; nil if there is none.
func Worker(s *corev1.PodSpec) *corev1.Container {
	for i := range s.Containers {
		if s.Containers[i].Name == v1alpha1.WorkerContainer {
			return &s.Containers[i]
		}
	}
	return nil
}

// template checks the template of a pool, and returns what its containers besides the worker request together.
func (c *checker) template(t *corev1.PodTemplateSpec) (beside model.Amount) {
	const spec = "spec.template.spec"
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(t)
	if err != nil {
		c.bad("spec.template", err, "write a pod template")
		return beside
	}
	for _, rule := range v1alpha1.TemplateRules() {
		c.refuse(fields, "spec.template", strings.Split(rule.Field, "."), &rule)
	}
	for key := range t.Labels {
		c.reserved("spec.template.metadata.labels", key)
	}
	for key := range t.Annotations {
		c.reserved("spec.template.metadata.annotations", key)
	}
	switch w := Worker(&t.Spec); {
	case w == nil || w.Image == "":
		c.bad(spec+".containers", fmt.Sprintf("%d containers", len(t.Spec.Containers)),
			"write one with the name worker and an image: it runs the engine")
	case len(w.Resources.Requests)+len(w.Resources.Limits) > 0:
		c.bad(spec+".containers: the resources of worker", compact(w.Resources),
			"leave them out: spec.size and spec.yarn.overhead say what it requests")
	case w.Lifecycle != nil && (w.Lifecycle.PreStop != nil || w.Lifecycle.StopSignal != nil):
		c.bad(spec+".containers: the lifecycle of worker", compact(w.Lifecycle),
			"leave preStop and stopSignal out: the pool's own hook drains it")
	}
	others := slices.DeleteFunc(slices.Clone(t.Spec.Containers), func(o corev1.Container) bool {
		return o.Name == v1alpha1.WorkerContainer
	})
	for _, o := range slices.Concat(others, t.Spec.InitContainers) {
		_, cpu := o.Resources.Requests[corev1.ResourceCPU]
		_, memory := o.Resources.Requests[corev1.ResourceMemory]
		if !cpu || !memory {
			c.bad(fmt.Sprintf("%s: the resources of container %s", spec, o.Name), compact(o.Resources),
				"write requests with cpu and memory: the pod requests them of the slack too")
		}
	}
	for _, v := range t.Spec.Volumes {
		if v.Name == "work" && v.EmptyDir == nil && v.Ephemeral == nil && v.HostPath == nil {
			c.bad(spec+".volumes: the volume work", compact(v.VolumeSource),
				"write an emptyDir, ephemeral or hostPath: each worker writes to one of its own")
		}
	}
	requests := resource.PodRequests(&corev1.Pod{Spec: corev1.PodSpec{
		InitContainers: t.Spec.InitContainers, Containers: others,
	}}, resource.PodResourcesOptions{})
	return model.Amount{CPU: requests.Cpu().MilliValue(), Memory: requests.Memory().Value()}
}

// reserved refuses labels and annotations that the manager and the webhook write on the pods of workers.
func (c *checker) reserved(field, key string) {
	if strings.HasPrefix(key, v1alpha1.LabelPool) || key == v1alpha1.LabelQoS || key == v1alpha1.AnnotationBatchResources {
		c.bad(field, key, "leave it out: Waterline writes it")
	}
}

// refuse refuses the values of a rule at a path below a node.
func (c *checker) refuse(node any, at string, path []string, rule *v1alpha1.TemplateRule) {
	fields, _ := node.(map[string]any)
	name, list := strings.CutSuffix(path[0], "[]")
	value, there := fields[name]
	if !there {
		return
	}
	at += "." + name
	switch items, _ := value.([]any); {
	case list:
		for i, item := range items {
			c.refuse(item, fmt.Sprintf("%s[%d]", at, i), path[1:], rule)
		}
	case len(path) > 1:
		c.refuse(value, at, path[1:], rule)
	case rule.Fix == "":
		c.bad(at, compact(value), "leave it out: pods of workers do not have it")
	case rule.Values == nil || slices.Contains(rule.Values, compact(value)):
		c.bad(at, compact(value), rule.Fix)
	}
}

// ResourceList returns an amount as Kubernetes has it.
func ResourceList(a model.Amount) corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:    *apiresource.NewMilliQuantity(a.CPU, apiresource.DecimalSI),
		corev1.ResourceMemory: *apiresource.NewQuantity(a.Memory, apiresource.BinarySI),
	}
}

// compact returns a value as JSON.
func compact(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	return string(text)
}
