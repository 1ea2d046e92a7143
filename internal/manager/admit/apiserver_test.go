package admit

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/waterline-io/waterline/api/v1alpha1"
)

// priority has the fields of a PriorityClass that matter here.
type priority struct {
	Value      int32                   `json:"value"`
	Preemption corev1.PreemptionPolicy `json:"preemption"`
}

var shipped = map[string]priority{
	v1alpha1.PriorityClassMid:    {v1alpha1.PriorityMid, corev1.PreemptNever},
	v1alpha1.PriorityClassBatch:  {v1alpha1.PriorityBatch, corev1.PreemptNever},
	v1alpha1.PriorityClassWorker: {v1alpha1.PriorityWorker, corev1.PreemptNever},
	"koord-mid":                  {7000, corev1.PreemptLowerPriority},
	"koord-batch":                {5000, corev1.PreemptLowerPriority},
	"koord-free":                 {3000, corev1.PreemptLowerPriority},
	"waterline-prod":             {v1alpha1.PriorityProd, corev1.PreemptLowerPriority},
	"system-cluster-critical":    {2000000000, corev1.PreemptLowerPriority},
	"":                           {0, corev1.PreemptLowerPriority},
}

type limitRange struct {
	Default        corev1.ResourceList `json:"default,omitempty"`
	DefaultRequest corev1.ResourceList `json:"defaultRequest,omitempty"`
}

// plugins does what the API server does before it calls webhooks: defaults (SetDefaults_Pod), LimitRanger
// (mergePodResourceRequirements) and Priority (admitPod).
func (s setting) plugins(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	for _, c := range containers(pod) {
		defaults(&c.Resources.Requests, c.Resources.Limits)
		if s.LimitRange != nil {
			defaults(&c.Resources.Requests, s.LimitRange.DefaultRequest)
			defaults(&c.Resources.Limits, s.LimitRange.Default)
			defaults(&c.Resources.Requests, s.LimitRange.Default)
		}
	}
	if r := pod.Spec.Resources; r != nil && len(r.Limits) > 0 {
		together := aggregate(pod)
		for name := range together {
			if name != corev1.ResourceCPU && name != corev1.ResourceMemory {
				delete(together, name)
			}
		}
		defaults(&r.Requests, together)
		defaults(&r.Requests, r.Limits)
	}
	class, found := s.Classes[pod.Spec.PriorityClassName]
	if !found {
		class, found = shipped[pod.Spec.PriorityClassName]
	}
	if !found {
		t.Fatalf("no PriorityClass %q", pod.Spec.PriorityClassName)
	}
	if p := pod.Spec.Priority; p != nil && *p != class.Value {
		t.Fatalf("Priority refuses %d, class %q has %d", *p, pod.Spec.PriorityClassName, class.Value)
	}
	if p := pod.Spec.PreemptionPolicy; p != nil && *p != class.Preemption {
		t.Fatalf("Priority refuses %s, class %q has %s", *p, pod.Spec.PriorityClassName, class.Preemption)
	}
	pod.Spec.Priority, pod.Spec.PreemptionPolicy = &class.Value, &class.Preemption
}

// defaults adds to a list the resources that are missing in it.
func defaults(list *corev1.ResourceList, from corev1.ResourceList) {
	for name, quantity := range from {
		if _, found := (*list)[name]; found {
			continue
		}
		if *list == nil {
			*list = corev1.ResourceList{}
		}
		(*list)[name] = quantity
	}
}

// check checks the invariants of every mutation.
func check(t *testing.T, before, after *corev1.Pod, o Outcome, rules Rules) {
	t.Helper()
	if o.Changed == equality.Semantic.DeepEqual(before, after) {
		t.Errorf("changed is %v", o.Changed)
	}
	if o.Changed {
		steps, err := patch(before, after)
		if err != nil {
			t.Fatal(err)
		}
		// Semantic equality first: it is quick, and TestProperties has 20000 pods.
		if patched := apply(t, before, steps); !equality.Semantic.DeepEqual(patched, after) {
			t.Errorf("%s: -want +got:\n%s", steps, cmp.Diff(after, patched))
		}
	}
	switch {
	case o.Why == OtherNames && before.Labels[v1alpha1.LabelQoS] != "":
		if !equality.Semantic.DeepEqual(before.Spec.Containers, after.Spec.Containers) ||
			!equality.Semantic.DeepEqual(before.Spec.Resources, after.Spec.Resources) {
			t.Error("requests under other names were changed")
		}
		if is := &after.Spec; !slices.Contains(BatchClasses(), is.PriorityClassName) &&
			(is.Priority == nil || *is.Priority >= 0) {
			t.Errorf("class %q: the pod can preempt batch pods", is.PriorityClassName)
		}
		return
	case o.Why != ByLabel && o.Why != ByPolicy:
		if o.Changed {
			t.Errorf("%s, and changed", o.Why)
		}
		return
	}
	published := map[corev1.ResourceName]bool{}
	koordinator, _ := rules.market(before)
	for tier := range spellings {
		for _, name := range namesOf(tier, koordinator) {
			published[name] = true
		}
	}
	if r := after.Spec.Resources; r != nil && (native(r.Requests) || native(r.Limits)) {
		t.Error("the pod still requests native resources")
	}
	for _, c := range containers(after) {
		if native(c.Resources.Requests) || native(c.Resources.Limits) {
			t.Errorf("%s still requests native resources", c.Name)
		}
		for _, k := range kinds {
			for _, name := range everySpelling(k) {
				request, requested := c.Resources.Requests[name]
				limit, limited := c.Resources.Limits[name]
				if requested != limited || request.Cmp(limit) != 0 || request.Value()*1000 != request.MilliValue() {
					t.Errorf("%s requests %s of %s and is limited to %s", c.Name, &request, name, &limit)
				}
				if requested && !published[name] {
					t.Errorf("%s requests %s, which no node publishes", c.Name, name)
				}
			}
		}
	}
}

func native(list corev1.ResourceList) bool {
	_, hasCPU := list[corev1.ResourceCPU]
	_, hasMemory := list[corev1.ResourceMemory]
	return hasCPU || hasMemory
}

// apply applies a JSON patch to a pod with the library that the API server uses.
func apply(t *testing.T, pod *corev1.Pod, steps []byte) *corev1.Pod {
	t.Helper()
	before, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	decoded, err := jsonpatch.DecodePatch(steps)
	if err != nil {
		t.Fatal(err)
	}
	after, err := decoded.Apply(before)
	if err != nil {
		t.Fatalf("applying %s: %v", steps, err)
	}
	patched := &corev1.Pod{}
	if err := json.Unmarshal(after, patched); err != nil {
		t.Fatal(err)
	}
	return patched
}
