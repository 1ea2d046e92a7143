package kube

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestMovable checks what keeps a pod on its node: a plain pod is kept by nothing, and each change by what it is about.
func TestMovable(t *testing.T) {
	controlled := func(kind string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			yes := true
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: kind, Name: "n", Controller: &yes}}
		}
	}
	annotated := func(key, value string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Annotations = map[string]string{key: value} }
	}
	volume := func(v corev1.VolumeSource) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: v}} }
	}
	affinity := func(a corev1.Affinity) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Spec.Affinity = &a } }
	term := []corev1.PodAffinityTerm{{TopologyKey: "zone"}}
	type kept struct{ wants, bound, data, constrained bool }
	for name, test := range map[string]struct {
		change func(*corev1.Pod)
		want   kept
	}{
		"plain":            {func(*corev1.Pod) {}, kept{}},
		"of a ReplicaSet":  {controlled("ReplicaSet"), kept{}},
		"of a DaemonSet":   {controlled("DaemonSet"), kept{bound: true}},
		"of a Node":        {controlled("Node"), kept{bound: true}},
		"evict never":      {annotated("waterline.io/evict", "never"), kept{wants: true}},
		"evict first":      {annotated("waterline.io/evict", "first"), kept{}},
		"not safe":         {annotated(safeToEvict, "false"), kept{wants: true}},
		"emptyDir":         {volume(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}), kept{data: true}},
		"emptyDir, memory": {volume(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: "Memory"}}), kept{}},
		"hostPath":         {volume(corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{}}), kept{data: true}},
		"claim": {volume(corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{}}),
			kept{constrained: true}},
		"secret": {volume(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{}}), kept{}},
		"near others": {affinity(corev1.Affinity{PodAffinity: &corev1.PodAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: term}}), kept{constrained: true}},
		"apart from others": {affinity(corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: term}}), kept{constrained: true}},
		"on some nodes": {affinity(corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}}), kept{}},
		"spread": {func(p *corev1.Pod) {
			p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{WhenUnsatisfiable: "DoNotSchedule"}}
		}, kept{constrained: true}},
		"spread if possible": {func(p *corev1.Pod) {
			p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{WhenUnsatisfiable: "ScheduleAnyway"}}
		}, kept{}},
		"host network": {func(p *corev1.Pod) { p.Spec.HostNetwork = true }, kept{constrained: true}},
		"host port": {func(p *corev1.Pod) {
			p.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: 80}}
		}, kept{constrained: true}},
		"device": {func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"example.com/gpu": resource.MustParse("1")}
		}, kept{constrained: true}},
	} {
		t.Run(name, func(t *testing.T) {
			p := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "c",
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}}}}}}
			test.change(p)
			if got := (kept{WantsToStay(p), NodeBound(p), LocalData(p), Constrained(p)}); got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

// TestTolerates checks tolerations of one taint, and that only taints that keep pods away count.
func TestTolerates(t *testing.T) {
	taint := corev1.Taint{Key: "team", Value: "db", Effect: corev1.TaintEffectNoSchedule}
	for name, test := range map[string]struct {
		by   []corev1.Toleration
		want bool
	}{
		"none":           {nil, false},
		"equal":          {[]corev1.Toleration{{Key: "team", Value: "db"}}, true},
		"another value":  {[]corev1.Toleration{{Key: "team", Operator: "Equal", Value: "web"}}, false},
		"another effect": {[]corev1.Toleration{{Key: "team", Value: "db", Effect: "NoExecute"}}, false},
		"exists":         {[]corev1.Toleration{{Key: "team", Operator: "Exists", Effect: "NoSchedule"}}, true},
		"everything":     {[]corev1.Toleration{{Operator: "Exists"}}, true},
		"unknown":        {[]corev1.Toleration{{Key: "team", Operator: "Gt", Value: "1"}}, false},
		"one of two":     {[]corev1.Toleration{{Key: "x", Operator: "Exists"}, {Key: "team", Value: "db"}}, true},
	} {
		p := &corev1.Pod{Spec: corev1.PodSpec{Tolerations: test.by}}
		if got := Tolerates(p, []corev1.Taint{taint}); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	avoid := corev1.Taint{Key: "team", Effect: corev1.TaintEffectPreferNoSchedule}
	if p := (&corev1.Pod{}); !Tolerates(p, []corev1.Taint{avoid}) || !Tolerates(p, nil) {
		t.Error("a taint that only asks for avoidance keeps a pod away")
	}
}
