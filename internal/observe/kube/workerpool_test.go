package kube

import (
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
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
		follow string
		want   time.Duration
		wrong  string
	}{
		{`{}`, 10 * time.Minute, ""},
		{`{window: 0s}`, 0, ""},
		{`{window: 1h}`, time.Hour, ""},
		{`{window: 1h1s}`, 0, "spec.size.follow.window"},
		{`{window: -1s}`, 0, "spec.size.follow.window"},
		{`{window: soon}`, 0, "invalid duration"},
	} {
		_, read, err := ParseWorkerPool(poolDocument(`yarn: {}, size: {follow: ` + c.follow + `}`))
		switch {
		case c.wrong == "" && (err != nil || read.Window != c.want):
			t.Errorf("%s: %s, %v; want %s", c.follow, read.Window, err, c.want)
		case c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)):
			t.Errorf("%s: %v, want an error of %s", c.follow, err, c.wrong)
		}
	}
}

// TestDefaultsOfPool checks that a document without optional fields has the defaults of the schema, and that what it
// says stays.
func TestDefaultsOfPool(t *testing.T) {
	p, read, err := ParseWorkerPool(poolDocument(`yarn: {}, drain: {timeout: 5m}`))
	want := WorkerPool{
		Floor: model.Amount{CPU: 1000, Memory: 2 << 30}, Step: model.Amount{CPU: 1000, Memory: 2 << 30},
		Ceiling: model.Amount{CPU: 1000, Memory: 2 << 30}, Overhead: model.Amount{CPU: 100, Memory: 1 << 30},
		VCoresPerCPU: 1, Pause: 30 * time.Second, Window: 10 * time.Minute, Grace: time.Minute, Drain: 5 * time.Minute,
		CoolDown: time.Minute, Waves: 1,
	}
	if err != nil || !reflect.DeepEqual(read, want) || p.Spec.YARN.User != "yarn" {
		t.Errorf("%+v, %v; want %+v", read, err, want)
	}
	if p, _, err := ParseWorkerPool(poolDocument(`trino: {environment: test}`)); err != nil ||
		p.Spec.Trino.User != "waterline" || p.Spec.Trino.Environment != "test" || p.Spec.YARN != nil {
		t.Errorf("%+v, %v", p.Spec, err)
	}
}

// poolDocument returns a document with a pool. spec is all but its template.
func poolDocument(spec string) []byte {
	if spec != "" {
		spec += ", "
	}
	return []byte(`{apiVersion: waterline.io/v1alpha1, kind: WorkerPool, metadata: {name: p, namespace: a}, spec: {` + spec +
		`template: {spec: {containers: [{name: worker, image: hadoop}]}}}}`)
}
