package kube

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/test/golden"
)

// TestClasses runs the golden cases of pods' classes. A line has a pod, "=>" and the result. The keys of a pod: ours
// and alias are the two labels, cpus is the annotation, priority the number, requests a resource.
func TestClasses(t *testing.T) {
	const file = "testdata/classes.txt"
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for line := range strings.Lines(string(content)) {
		input, _, isCase := strings.Cut(line, "=>")
		if !isCase {
			got.WriteString(line)
			continue
		}
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{UID: "0a", Labels: map[string]string{}, Annotations: map[string]string{}},
		}
		for _, word := range strings.Fields(input) {
			key, value, _ := strings.Cut(word, "=")
			switch key {
			case "ours":
				p.Labels[v1alpha1.LabelQoS] = value
			case "alias":
				p.Labels[v1alpha1.LabelQoSAlias] = value
			case "requests":
				p.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceName(value): resource.MustParse("100")},
				}}}
			case "cpus":
				p.Annotations[v1alpha1.AnnotationCPUManager] = value
			case "priority":
				n, err := strconv.ParseInt(value, 10, 32)
				if err != nil {
					t.Fatal(err)
				}
				priority := int32(n)
				p.Spec.Priority = &priority
			case "-":
			default:
				t.Fatalf("%q has no %q", line, key)
			}
		}
		pod, ok := Pod(p, "")
		if !ok {
			t.Fatalf("%q is no pod", line)
		}
		fmt.Fprintf(&got, "%s=> %s tier=%s cpus=%s online=%v", input, pod.Class, pod.Tier, pod.Annotations.CPUs,
			pod.Class.Online())
		for _, n := range pod.Annotations.Notices {
			fmt.Fprintf(&got, "; %s", n)
		}
		got.WriteByte('\n')
	}
	golden.Compare(t, file, got.String())
}

// TestPriorities checks the priorities of batch against the rules of others. Online pods without a class have 0. The
// cluster autoscaler adds no node for pods below its cutoff, and ignores their PodDisruptionBudgets.
func TestPriorities(t *testing.T) {
	const online, cutoff = 0, -10
	for name, p := range map[string]struct {
		priority   int32
		expendable bool
	}{
		"batch": {v1alpha1.PriorityBatch, true}, "mid": {v1alpha1.PriorityMid, true},
		"the last of mid": {v1alpha1.PriorityMid - v1alpha1.PriorityMidBand + 1, true},
		"worker":          {v1alpha1.PriorityWorker, false},
	} {
		if p.priority >= online || (p.priority < cutoff) != p.expendable {
			t.Errorf("%s has the priority %d", name, p.priority)
		}
	}
	if v1alpha1.PriorityBatch > v1alpha1.PriorityMid-v1alpha1.PriorityMidBand {
		t.Error("batch and mid overlap")
	}
}

// TestOwners checks that pods of one workload have one owner, whatever its revision.
func TestOwners(t *testing.T) {
	yes := true
	for _, c := range []struct{ kind, name, hash, want string }{
		{"ReplicaSet", "web-5d4f7c", "5d4f7c", "Deployment/shop/web"},
		{"ReplicaSet", "web-5d4f7c", "", "ReplicaSet/shop/web-5d4f7c"},
		{"ReplicaSet", "5d4f7c", "5d4f7c", "ReplicaSet/shop/5d4f7c"},
		{"StatefulSet", "db", "", "StatefulSet/shop/db"},
		{"Job", "report-29384756", "", "CronJob/shop/report"},
		{"Job", "report", "", "Job/shop/report"},
		{"Job", "report-2a", "", "Job/shop/report-2a"},
		{"", "", "", "Pod/shop/alone"},
	} {
		t.Run(c.want, func(t *testing.T) {
			p := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{
					UID:       "0a",
					Namespace: "shop",
					Name:      "alone",
					Labels:    map[string]string{"pod-template-hash": c.hash},
				},
			}
			if c.kind != "" {
				p.OwnerReferences = []metav1.OwnerReference{{Kind: "Watcher", Name: "other"},
					{Kind: c.kind, Name: c.name, Controller: &yes}}
			}
			if pod, _ := Pod(p, ""); pod.Owner != c.want {
				t.Errorf("%s %s: got %s", c.kind, c.name, pod.Owner)
			}
		})
	}
}
