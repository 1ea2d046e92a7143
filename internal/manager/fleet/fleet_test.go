package fleet

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/nodehealth"
	"github.com/waterline-io/waterline/test/managertest"
)

// TestObserve checks what oversight is told of the objects of the API.
func TestObserve(t *testing.T) {
	f := New()
	ready := func(name, node string, is corev1.ConditionStatus, change func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "w"}, Spec: corev1.PodSpec{NodeName: node}}
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.ContainersReady, Status: is}}
		change(p)
		return p
	}
	as := func(*corev1.Pod) {}
	going := func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Now()} }
	for _, name := range []string{"d", "c", "b", "a"} {
		managertest.Add(t, f.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	withdrawn := &v1alpha1.NodeReport{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	withdrawn.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionWithdrawn, Status: metav1.ConditionTrue}}
	managertest.Add(t, f.Reports, withdrawn, &v1alpha1.NodeReport{ObjectMeta: metav1.ObjectMeta{Name: "e"}})
	managertest.Add(t, f.Agents, ready("1", "a", "True", as),
		ready("2", "b", "True", going), ready("3", "b", "False", as), // one follows another
		ready("4", "c", "True", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }),
		ready("5", "", "False", as),
		ready("6", "d", "True", func(p *corev1.Pod) { // the node controller takes the node for lost, and the kubelet does not
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: "False"})
		}))
	want := []nodehealth.Node{
		{Name: "a", Agent: nodehealth.AgentReady, Report: true, Withdrawn: true},
		{Name: "b", Agent: nodehealth.AgentNotReady},
		{Name: "c"}, {Name: "d", Agent: nodehealth.AgentReady},
		{Name: "e", Gone: true, Report: true},
	}
	got := f.Observe()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}
