package e2e_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestSchedulerDefault puts the scheduler in the place of the cluster's own: it has the configuration and the rights
// that the chart gives it under the name default-scheduler. While the cluster's scheduler leads, it stands by. Once
// that one is gone, it does the same for pods that name no scheduler.
func TestSchedulerDefault(t *testing.T) {
	s := newSchedule(t)
	const patient = "leaderElect: true\n  leaseDuration: 30s\n  renewDeadline: 20s" // on a machine that stands still
	config := strings.Replace(chartScheduler(t, "scheduler.name=default-scheduler"), "leaderElect: true", patient, 1)
	apply(t, `
{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: lowest}, value: 1}
---
{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: low}, value: 2}
---
{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: high}, value: 3}
`)
	own := s.start("kube-scheduler", fmt.Sprintf(`
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection:
  %s
clientConnection: {kubeconfig: %q}
`, patient, bed.Kubeconfig()))
	holder := func() string {
		out, err := tryKubectl("get", "lease", "kube-scheduler", "-n", "kube-system", "-o=jsonpath={.spec.holderIdentity}")
		if err != nil {
			return ""
		}
		return out
	}
	first := ""
	eventually(t, "the cluster's scheduler leads", func() (bool, string) { first = holder(); return first != "", "" })
	next := s.start("waterline-scheduler", config)
	eventually(t, "the other one stands by", func() (bool, string) { return next.page("/readyz") == "ok", "" })
	// placed returns how many pods Waterline's scheduler has placed, as its metrics say.
	placed := func() string {
		const line = `scheduler_schedule_attempts_total{profile="default-scheduler",result="scheduled"} `
		_, after, _ := strings.Cut(next.page("/metrics"), "\n"+line)
		count, _, _ := strings.Cut(after, "\n")
		return count
	}

	t.Run("Stock", s.placesOrdinaryPods)
	if is := placed(); is != "" && is != "0" {
		t.Errorf("Waterline's scheduler placed %s pods while the cluster's own led", is)
	}
	if is := holder(); is != first {
		t.Errorf("%s holds the Lease, and the cluster's scheduler had it as %s", is, first)
	}
	own.kill()
	eventually(t, "the other one leads", func() (bool, string) { is := holder(); return is != "" && is != first, is })
	t.Run("Waterline", s.placesOrdinaryPods)
	if is := placed(); is != "5" {
		t.Errorf("Waterline's scheduler placed %q pods of 5", is)
	}
	if strings.Contains(next.out.String(), "forbidden") {
		t.Errorf("the scheduler lacks rights: %s", next.out.String())
	}
}

// placesOrdinaryPods makes pods that name no scheduler, on two nodes: one of a DaemonSet for each node, pods of low
// priority that fill the nodes, and one of high priority, for which the pod of the lowest priority makes room.
func (s *schedule) placesOrdinaryPods(t *testing.T) {
	sub := *s
	sub.t = t
	sub.registry = newRegistry(t)
	defer func() { s.pods = sub.pods }()
	t.Cleanup(sub.clean)
	names := []string{nodeName(1), nodeName(2)}
	sub.nodes(schedNode{name: names[0], cpu: 2}, schedNode{name: names[1], cpu: 2})

	for _, node := range names {
		daemon := sub.pod("", func(p *corev1.Pod) { // as its controller makes it
			only := corev1.NodeSelectorRequirement{
				Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node},
			}
			p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
					{MatchFields: []corev1.NodeSelectorRequirement{only}},
				}},
			}}
		})
		if on := sub.bound(daemon).Spec.NodeName; on != node {
			t.Errorf("the pod of a DaemonSet for %s went to %s", node, on)
		}
	}
	large := func(priority string) string {
		return sub.pod("", func(p *corev1.Pod) {
			grace := int64(0) // no kubelet ends it
			p.Spec.PriorityClassName, p.Spec.TerminationGracePeriodSeconds = priority, &grace
			p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("1500m")
		})
	}
	stays, victim := large("low"), large("lowest")
	stayed, room := sub.bound(stays).Spec.NodeName, sub.bound(victim).Spec.NodeName
	if stayed == room {
		t.Errorf("two pods of 1.5 CPUs are on %s, which has 2", room)
	}
	if on := sub.bound(large("high")).Spec.NodeName; on != room {
		t.Errorf("the pod of high priority went to %s, and the lowest priority was on %s", on, room)
	}
	left := map[string]bool{}
	for _, p := range sub.list() {
		left[p.Name] = true
		if p.Spec.SchedulerName != corev1.DefaultSchedulerName {
			t.Errorf("%s names the scheduler %s", p.Name, p.Spec.SchedulerName)
		}
	}
	if left[victim] || !left[stays] {
		t.Errorf("of %s and %s, the one of the lowest priority should have left: %v", stays, victim, left)
	}
}
