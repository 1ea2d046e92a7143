package kube

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
)

// TestPoolOfPod checks which pods count as workers of a pool: only those that their pool controls, whatever label a
// tenant gives his own. What a pod says that it holds counts for workers only.
func TestPoolOfPod(t *testing.T) {
	controls := metav1.OwnerReference{
		APIVersion: v1alpha1.GroupVersion, Kind: "WorkerPool", Name: "night", Controller: new(true),
	}
	owns, foreign, set, other := controls, controls, controls, controls
	owns.Controller, foreign.APIVersion, set.Kind, other.Name = nil, "example.com/v1", "StatefulSet", "day"
	for _, c := range []struct {
		name  string
		label string
		owner *metav1.OwnerReference
		want  string
	}{
		{"a worker", "night", &controls, "night"},
		{"only its label", "night", nil, ""},
		{"only its owner", "", &controls, ""},
		{"the label of another pool", "night", &other, ""},
		{"an owner that does not control it", "night", &owns, ""},
		{"an owner of another kind", "night", &set, ""},
		{"an owner of another group", "night", &foreign, ""},
		{"no pool", "", nil, ""},
	} {
		list := corev1.ResourceList{v1alpha1.ResourceBatchMemory: resource.MustParse("1Gi")}
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				UID: "0a", Labels: map[string]string{v1alpha1.LabelPool: c.label},
				Annotations: map[string]string{
					v1alpha1.AnnotationPoolHeld: "1048576",
					v1alpha1.AnnotationBatchResources: `{"containers": {"c": {"request": {"memory": 1073741824}, ` +
						`"limit": {"memory": 2147483648}}}}`,
				},
			},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Name: "c", Resources: corev1.ResourceRequirements{Requests: list, Limits: list},
			}}},
		}
		if c.owner != nil {
			p.OwnerReferences = []metav1.OwnerReference{*c.owner}
		}
		held := int64(0)
		if c.want != "" {
			held = 1 << 20
		}
		if pod, ok := Pod(p, ""); !ok || pod.Pool != c.want || pod.Held != held {
			t.Errorf("%s: the pool is %q, want %q; it holds %d bytes, want %d", c.name, pod.Pool, c.want, pod.Held, held)
		}
	}
}

// TestWindowOfPool reads how a worker follows its node: 10 min unless the pool says otherwise, and an hour at most.
func TestWindowOfPool(t *testing.T) {
	for _, c := range []struct {
		follow *v1alpha1.FollowSpec
		want   time.Duration
		wrong  string
	}{
		{nil, 10 * time.Minute, ""},
		{&v1alpha1.FollowSpec{}, 10 * time.Minute, ""},
		{&v1alpha1.FollowSpec{Window: "0s"}, 0, ""},
		{&v1alpha1.FollowSpec{Window: "1h"}, time.Hour, ""},
		{&v1alpha1.FollowSpec{Window: "1h1s"}, 0, "spec.size.follow.window"},
		{&v1alpha1.FollowSpec{Window: "soon"}, 0, "spec.size.follow.window"},
	} {
		p := &v1alpha1.WorkerPool{}
		p.Spec.YARN, p.Spec.Template = &v1alpha1.YARNSpec{}, workerTemplate()
		p.Spec.Size.Follow = c.follow
		read, err := ReadWorkerPool(p)
		switch {
		case c.wrong == "" && (err != nil || read.Window != c.want):
			t.Errorf("%+v: %s, %v; want %s", c.follow, read.Window, err, c.want)
		case c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)):
			t.Errorf("%+v: %v, want an error of %s", c.follow, err, c.wrong)
		}
	}
}
