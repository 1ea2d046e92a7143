package kube

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestChooseNode(t *testing.T) {
	node := func(name string, ready corev1.ConditionStatus, change func(*corev1.NodeSpec)) corev1.Node {
		n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}},
		}}
		if change != nil {
			change(&n.Spec)
		}
		return n
	}
	a, b := node("a", corev1.ConditionTrue, nil), node("b", corev1.ConditionTrue, nil)
	away := node("away", corev1.ConditionUnknown, nil)
	cordoned := node("cordoned", corev1.ConditionTrue, func(s *corev1.NodeSpec) { s.Unschedulable = true })
	plane := node("plane", corev1.ConditionTrue, func(s *corev1.NodeSpec) {
		s.Taints = []corev1.Taint{{Key: "node-role.kubernetes.io/control-plane", Effect: corev1.TaintEffectNoSchedule}}
	})
	for _, tc := range []struct {
		nodes []corev1.Node
		name  string
		want  string // its name, or what is in the error
	}{
		{[]corev1.Node{a}, "", "a"},
		{[]corev1.Node{plane, cordoned, away, a}, "", "a"},
		{[]corev1.Node{a, b}, "b", "b"},
		{[]corev1.Node{a, plane}, "plane", "plane"},
		{[]corev1.Node{a, b}, "", "2 nodes take pods; choose one with --node: the nodes are a, b"},
		{[]corev1.Node{a, b}, "c", "there is no node c: the nodes are a, b"},
		{[]corev1.Node{plane, cordoned, away}, "", "plane (taint node-role.kubernetes.io/control-plane:NoSchedule), " +
			"cordoned (cordoned), away (not ready)"},
		{nil, "", "the cluster has no nodes"},
	} {
		got, err := ChooseNode(tc.nodes, tc.name)
		if err == nil && got.Name != tc.want || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%q of %d nodes: %v, %v, not %s", tc.name, len(tc.nodes), got, err, tc.want)
		}
	}
}
