package sweep

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/waterline-io/waterline/internal/model"
)

// TestRequests checks what counts as requested by whom, and which owners are summed up.
func TestRequests(t *testing.T) {
	uid := 0
	pod := func(namespace, kind, owner, cpu string, change func(*corev1.Pod)) *corev1.Pod {
		uid++
		yes := true
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: fmt.Sprint("p", uid), UID: types.UID(fmt.Sprintf("6016fc45-0a1b-4c2d-8e3f-%012d", uid)),
				Labels:          map[string]string{"waterline.io/qos": "BE", "pod-template-hash": "5f"},
				OwnerReferences: []metav1.OwnerReference{{Kind: kind, Name: owner, Controller: &yes}},
			},
			Spec: corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{
				Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
					"waterline.io/batch-cpu": resource.MustParse(cpu), "waterline.io/mid-memory": resource.MustParse("1Gi"),
				}},
			}}},
		}
		if change != nil {
			change(p)
		}
		return p
	}
	r := Requests{}
	for _, p := range []*corev1.Pod{
		pod("shop", "ReplicaSet", "encode-5f", "1500", nil), pod("shop", "ReplicaSet", "encode-5f", "500", nil),
		pod("shop", "Job", "burn", "300", nil),
		pod("shop", "Job", "later", "9000", func(p *corev1.Pod) { p.Spec.NodeName = "" }),
		pod("shop", "Job", "done", "9000", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }),
		pod("shop", "Job", "online", "9000", func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests = nil }),
		pod("lab", "Job", "a", "100", nil), pod("lab", "Job", "b", "200", nil), pod("shop", "Job", "c", "100", nil),
	} {
		r.add(p)
	}
	const gib = 1 << 30
	want := Requests{
		{"shop", "Deployment/encode"}: {CPU: 2000, Memory: 2 * gib}, {"shop", "Job/burn"}: {CPU: 300, Memory: gib},
		{"shop", "Job/c"}: {CPU: 100, Memory: gib}, {"lab", "Job/a"}: {CPU: 100, Memory: gib},
		{"lab", "Job/b"}: {CPU: 200, Memory: gib},
	}
	if d := cmp.Diff(want, r); d != "" {
		t.Errorf("requests (-want +got):\n%s", d)
	}
	want = Requests{
		{"shop", "Deployment/encode"}: {CPU: 2000, Memory: 2 * gib}, {"shop", "Job/burn"}: {CPU: 300, Memory: gib},
		{"shop", ""}: {CPU: 100, Memory: gib}, {"lab", ""}: {CPU: 300, Memory: 2 * gib},
	}
	if d := cmp.Diff(want, r.Largest(2)); d != "" {
		t.Errorf("the two largest (-want +got):\n%s", d)
	}
	if got := (Requests{}).Largest(MaxOwners); len(got) != 0 {
		t.Errorf("of none: %v", got)
	}
	long := Requests{}
	long.add(pod("lab", "Job", strings.Repeat("a", 1<<20)+"\xff", "100", nil))
	for of := range long {
		if len(of.Owner) > longestOwner || !utf8.ValidString(of.Owner) {
			t.Errorf("the owner has %d bytes", len(of.Owner))
		}
	}
	if (r[Requester{"lab", "Job/b"}] != model.Amount{CPU: 200, Memory: gib}) {
		t.Error("the sums changed")
	}
}
