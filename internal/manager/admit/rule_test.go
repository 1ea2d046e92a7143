package admit

import (
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/waterline-io/waterline/api/v1alpha1"
)

func optedIn(name string) *corev1.Namespace {
	return &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{
			Name:   name,
			Labels: map[string]string{v1alpha1.LabelColocation: v1alpha1.ColocationEnabled},
		},
	}
}

func everything(percent int) Rules {
	return Rules{Ours: true, Pods: []Rule{{Policy: "all", Selector: labels.Everything(), Percent: percent}}}
}

// podOf returns a pod of a ReplicaSet of a Deployment.
func podOf(deployment, hash string) *corev1.Pod {
	yes := true
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", GenerateName: deployment + "-" + hash + "-", Labels: map[string]string{"pod-template-hash": hash},
		OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: deployment + "-" + hash, Controller: &yes}},
	}}
}

// TestPercent checks that a percentage is a percentage of owners, and exact. In Koordinator, 30 % are 31 %, drawn anew
// for each pod.
func TestPercent(t *testing.T) {
	const owners = 10000
	selected := func(policy string, percent int) map[int]bool {
		all := map[int]bool{}
		rules := Rules{Ours: true, Pods: []Rule{{Policy: policy, Selector: labels.Everything(), Percent: percent}}}
		for i := range owners {
			deployment := fmt.Sprintf("web-%d", i)
			_, o := rules.Mutate(podOf(deployment, "5d4f7c"), optedIn("shop"))
			for range 2 {
				if _, other := rules.Mutate(podOf(deployment, "77b8f"), optedIn("shop")); other.Why != o.Why {
					t.Fatalf("pods of %s are %s and %s", deployment, o.Why, other.Why)
				}
			}
			if o.Why == ByPolicy {
				all[i] = true
			}
		}
		return all
	}
	var last map[int]bool
	for _, percent := range []int{-1, 0, 1, 30, 50, 99, 100, 101} {
		now := selected("a", percent)
		p := min(max(float64(percent), 0), 100) / 100
		if got, sigma := float64(len(now)), math.Sqrt(owners*p*(1-p)); math.Abs(got-owners*p) > 4*sigma {
			t.Errorf("%d %%: %d of %d", percent, len(now), owners)
		}
		for i := range last {
			if !now[i] {
				t.Errorf("owner %d is out at %d %%, and was in at less", i, percent)
			}
		}
		last = now
	}
	// Each policy begins with other owners: a tenth of both, not the same.
	a, b := selected("a", 30), selected("b", 30)
	both := 0
	for i := range a {
		if b[i] {
			both++
		}
	}
	if math.Abs(float64(both)-0.09*owners) > 4*math.Sqrt(owners*0.09*0.91) {
		t.Errorf("%d owners are in both", both)
	}
}

// TestThreshold fixes the thresholds of owners: a new version must not change them.
func TestThreshold(t *testing.T) {
	for _, c := range []struct {
		owner, policy string
		want          int
	}{{"Deployment/shop/web", "night", 51}, {"Deployment/shop/web", "day", 62}, {"CronJob/shop/report", "night", 29},
		{"Pod/shop/alone", "night", 34}} {
		t.Run(c.owner+" "+c.policy, func(t *testing.T) {
			if got := threshold(c.owner, c.policy); got != c.want {
				t.Errorf("%d, want %d", got, c.want)
			}
		})
	}
}

// TestNeverByPolicy lists pods that no rule makes batch.
func TestNeverByPolicy(t *testing.T) {
	yes, high, prod := true, int32(v1alpha1.PriorityOnline), int32(v1alpha1.PriorityProd)
	for _, c := range []struct {
		name      string
		change    func(*corev1.Pod)
		namespace *corev1.Namespace
		rules     Rules
		want      Why
	}{
		{"selected", func(*corev1.Pod) {}, optedIn("shop"), everything(100), ByPolicy},
		{"no rule", func(*corev1.Pod) {}, optedIn("shop"), Rules{}, NotSelected},
		{"no selector", func(*corev1.Pod) {}, optedIn("shop"), Rules{Pods: []Rule{{Policy: "p", Percent: 100}}}, NotSelected},
		{"namespace unknown", func(*corev1.Pod) {}, nil, everything(100), NamespaceUnknown},
		{"another namespace", func(*corev1.Pod) {}, optedIn("other"), everything(100), NamespaceUnknown},
		{
			"namespace not in", func(*corev1.Pod) {}, &corev1.Namespace{
				ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{v1alpha1.LabelColocation: "true"}},
			}, everything(100), NotOptedIn,
		},
		{
			"online by label", func(p *corev1.Pod) { p.Labels = map[string]string{v1alpha1.LabelQoS: "LS"} }, optedIn("shop"),
			everything(100), OtherClass,
		},
		{
			"online by alias", func(p *corev1.Pod) { p.Labels = map[string]string{v1alpha1.LabelQoSAlias: "LSR"} },
			optedIn("shop"), everything(100), OtherClass,
		},
		{
			"empty label", func(p *corev1.Pod) { p.Labels = map[string]string{v1alpha1.LabelQoS: ""} }, optedIn("shop"),
			everything(100), OtherClass,
		},
		{
			"kube-system", func(p *corev1.Pod) { p.Namespace = "kube-system" }, optedIn("kube-system"), everything(100),
			Protected,
		},
		{
			"ourselves", func(p *corev1.Pod) { p.Namespace = v1alpha1.Namespace }, optedIn(v1alpha1.Namespace), everything(100),
			Protected,
		},
		{"daemon", func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Controller: &yes}}
		}, optedIn("shop"), everything(100), Protected},
		{
			"static", func(p *corev1.Pod) { p.OwnerReferences = []metav1.OwnerReference{{Kind: "Node", Controller: &yes}} },
			optedIn("shop"), everything(100), Protected,
		},
		{
			"mirror", func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} },
			optedIn("shop"), everything(100), Mirror,
		},
		{"prod", func(p *corev1.Pod) { p.Spec.Priority = &prod }, optedIn("shop"), everything(100), Online},
		{"from 8000 on", func(p *corev1.Pod) { p.Spec.Priority = &high }, optedIn("shop"), everything(100), Online},
	} {
		t.Run(c.name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "shop"}}
			c.change(pod)
			after, o := c.rules.Mutate(pod, c.namespace)
			if o.Why != c.want {
				t.Errorf("%s, want %s", o.Why, c.want)
			}
			check(t, pod, after, o, c.rules)
		})
	}
}

// TestKeep checks that an update cannot change the annotation.
func TestKeep(t *testing.T) {
	const key = v1alpha1.AnnotationBatchResources
	for _, c := range []struct {
		name              string
		before, now, want map[string]string
		changed           bool
	}{
		{"absent", nil, nil, nil, false},
		{
			"kept", map[string]string{key: "a"}, map[string]string{key: "a", "other": "x"},
			map[string]string{key: "a", "other": "x"}, false,
		},
		{
			"changed", map[string]string{key: "a"}, map[string]string{key: "b", "other": "x"},
			map[string]string{key: "a", "other": "x"}, true,
		},
		{"removed", map[string]string{key: "a"}, nil, map[string]string{key: "a"}, true},
		{"added", nil, map[string]string{key: "b"}, nil, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			before, now := &corev1.Pod{}, &corev1.Pod{}
			before.Annotations, now.Annotations = c.before, c.now
			after, o := Keep(before, now)
			if diff := cmp.Diff(c.want, after.Annotations, cmpopts.EquateEmpty()); diff != "" || o.Changed != c.changed {
				t.Errorf("changed %v, -want +got:\n%s", o.Changed, diff)
			}
			check(t, now, after, Outcome{Changed: o.Changed, Why: ByLabel}, Rules{})
		})
	}
}
