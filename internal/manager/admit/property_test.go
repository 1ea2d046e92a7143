package admit

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	helpers "k8s.io/component-helpers/resource"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/fixture"
)

// randomResources requests CPU and memory in one of the possible ways.
func randomResources(r *rand.Rand) corev1.ResourceRequirements {
	var all corev1.ResourceRequirements
	set := func(list *corev1.ResourceList, name corev1.ResourceName, amount int64, scale resource.Scale) {
		if *list == nil {
			*list = corev1.ResourceList{}
		}
		(*list)[name] = *resource.NewScaledQuantity(amount, scale)
	}
	for _, k := range kinds {
		name, scale := k.native(), []resource.Scale{resource.Micro, resource.Milli}[k]
		request := r.Int64N(1_000_000_000)
		if r.IntN(8) == 0 {
			request = 0
		}
		if r.IntN(3) > 0 {
			set(&all.Requests, name, request, scale)
		}
		if r.IntN(3) == 0 {
			set(&all.Limits, name, request+r.Int64N(1_000_000_000), scale)
		}
	}
	if r.IntN(4) == 0 {
		set(&all.Requests, corev1.ResourceEphemeralStorage, 1, resource.Giga)
	}
	return all
}

func randomPod(r *rand.Rand) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "shop"}}
	if r.IntN(4) > 0 {
		pod.Labels = map[string]string{
			[]string{v1alpha1.LabelQoS, v1alpha1.LabelQoSAlias}[r.IntN(2)]: []string{"BE", "BE", "BE", "LS", "x"}[r.IntN(5)],
		}
	}
	for i := range r.IntN(3) {
		c := corev1.Container{Name: "init" + strconv.Itoa(i), Resources: randomResources(r)}
		if r.IntN(2) == 0 {
			always := corev1.ContainerRestartPolicyAlways
			c.RestartPolicy = &always
		}
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
	}
	for i := range 1 + r.IntN(4) {
		pod.Spec.Containers = append(pod.Spec.Containers,
			corev1.Container{Name: "app" + strconv.Itoa(i), Resources: randomResources(r)})
	}
	if r.IntN(3) == 0 {
		all := randomResources(r)
		for _, list := range []corev1.ResourceList{all.Requests, all.Limits} {
			delete(list, corev1.ResourceEphemeralStorage)
			for name, q := range list {
				q.Mul(10)
				list[name] = q
			}
		}
		pod.Spec.Resources = &all
	}
	if r.IntN(5) == 0 {
		amount := resource.NewQuantity(1+r.Int64N(4000), resource.DecimalSI)
		theirs := corev1.ResourceList{v1alpha1.ResourceKoordinatorBatchCPU: *amount}
		pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: theirs, Limits: theirs}
	}
	if r.IntN(3) == 0 {
		priority := int32(r.IntN(12000) - 2000)
		pod.Spec.Priority = &priority
	}
	return pod
}

// TestProperties checks random pods. A pod that is not batch stays unchanged. A batch pod requests no native resources
// any more, and as much as before. A second call changes nothing.
func TestProperties(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 1))
	met := map[string]int{}
	for i := range fixture.Times(20000) {
		rules := Rules{Ours: r.IntN(4) > 0, Koordinator: r.IntN(2) == 0}
		pod := randomPod(r)
		before := pod.DeepCopy()
		after, o := rules.Mutate(pod, nil)
		if !equality.Semantic.DeepEqual(pod, before) {
			t.Fatalf("pod %d: the argument was changed", i)
		}
		met[string(o.Why)]++
		check(t, before, after, o, rules)
		if o.Why == ByLabel {
			met["pod level: "+strconv.FormatBool(before.Spec.Resources != nil)]++
			if _, named := lookup(before.Spec.Containers[0].Resources, v1alpha1.ResourceKoordinatorBatchCPU); !named {
				sums(t, before, after, rules)
			}
			again, twice := rules.Mutate(after, nil)
			if twice.Changed || len(twice.Warnings) > 0 {
				t.Errorf("pod %d: a second call changes\n%+v to\n%+v: %q", i, after, again, twice.Warnings)
			}
		}
		if t.Failed() {
			t.Fatalf("pod %d: %+v", i, before)
		}
	}
	for _, what := range []string{
		"ByLabel", "OtherClass", "NotSelected", "Invalid", "NothingSold", "OtherNames", "pod level: true",
		"pod level: false",
	} {
		if met[what] < fixture.Times(500) {
			t.Errorf("%s was met %d times: %v", what, met[what], met)
		}
	}
}

// sums checks that the scheduler counts as much batch as it would have counted native, but for rounding up.
func sums(t *testing.T, before, after *corev1.Pod, rules Rules) {
	t.Helper()
	written := before.DeepCopy()
	written.Spec.Priority = nil
	setting{}.plugins(t, written)
	was := helpers.PodRequests(written, helpers.PodResourcesOptions{})
	is := helpers.PodRequests(after, helpers.PodResourcesOptions{})
	koordinator, _ := rules.market(before)
	for _, k := range kinds {
		var sum int64
		for _, tier := range []model.Tier{model.TierBatch, model.TierMid} {
			q := is[namesOf(tier, koordinator)[k]]
			sum += q.Value()
		}
		want := k.amount(was[k.native()])
		if most := want + int64(len(containers(before))); sum < want || sum > most {
			t.Errorf("%s: %d of batch for %d", k.native(), sum, want)
		}
	}
}

// TestEnormous checks that amounts that no machine has do not overflow into small ones.
func TestEnormous(t *testing.T) {
	for _, amount := range []string{"9223372036854775807", "1e30", "9223372036854775807k", "99E", "70Ti"} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1alpha1.LabelQoS: "BE"}}}
		for i := range 100 {
			q := resource.MustParse(amount)
			list := corev1.ResourceList{corev1.ResourceCPU: q, corev1.ResourceMemory: q}
			pod.Spec.Containers = append(pod.Spec.Containers,
				corev1.Container{Name: fmt.Sprint(i), Resources: corev1.ResourceRequirements{Requests: list}})
		}
		after, _ := Rules{Ours: true}.Mutate(pod, nil)
		requests := helpers.PodRequests(after, helpers.PodResourcesOptions{})
		for _, name := range namesOf(model.TierBatch, false) {
			if q := requests[name]; q.Value() != 100*maxAmount {
				t.Errorf("%s of %s: %s", amount, name, &q)
			}
		}
	}
}
