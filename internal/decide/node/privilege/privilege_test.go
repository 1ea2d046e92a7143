package privilege

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/fixture"
)

// static returns the mirror of a static pod.
func static(uid, namespace string) *model.Pod {
	p := fixture.Pod(uid, model.Burstable)
	p.Namespace, p.Name, p.APIUID = namespace, "mirror", uid+"-"+namespace
	return p
}

// TestTwoOfOneUID checks which pod counts if a mirror pod names a UID that another pod has, in either order.
func TestTwoOfOneUID(t *testing.T) {
	real, etcd := fixture.Pod("a", model.Burstable), static("etcd", "kube-system")
	all := []model.PrivilegeRule{{Allow: model.Privileges()}}
	for _, tc := range []struct {
		name       string
		pods       []*model.Pod
		privileges []model.PrivilegeRule
		want       []*model.Pod
	}{
		{"a forged mirror of a pod", []*model.Pod{static("a", "aaa"), real}, nil, []*model.Pod{real}},
		{"the same where static pods are allowed", []*model.Pod{static("a", "aaa"), real}, all, []*model.Pod{real}},
		{"a forged mirror of a static pod", []*model.Pod{static("etcd", "aaa"), etcd}, nil, []*model.Pod{etcd}},
		{"of another", []*model.Pod{static("etcd", "zzz"), real}, nil, []*model.Pod{real}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for range 2 {
				policy := model.Policy{Privileges: tc.privileges}
				got, notices := Decide(tc.pods, &policy)
				if !slices.Equal(got, tc.want) || len(notices) > 0 {
					t.Errorf("%d pods, want the real one; notices %v", len(got), notices)
				}
				slices.Reverse(tc.pods)
			}
		})
	}
}

// TestDenied checks with random pods and policies that a pod with a request that the policy does not allow is decided
// as one without that request, that the others stay the same values, and that no argument changes.
func TestDenied(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 1))
		policy := model.Policy{}
		for range r.IntN(3) {
			all := model.Privileges()
			policy.Privileges = append(policy.Privileges, model.PrivilegeRule{
				Namespaces: model.Selector{{Key: "team", Op: model.In, Values: []string{"video"}}},
				Allow:      all[:1+r.IntN(len(all))],
			})
		}
		var pods []*model.Pod
		for i := range r.IntN(6) {
			pods = append(pods, random(r, fmt.Sprintf("%02d", i)))
		}
		before := make([]model.Pod, len(pods))
		for i, p := range pods {
			before[i] = *p
		}
		got, notices := Decide(pods, &policy)
		denied := 0
		for i, p := range pods {
			if d := fixture.Diff(before[i], *p); d != "" {
				t.Fatalf("seed %d: a pod was changed:\n%s", seed, d)
			}
			had := model.FindPod(got, p.UID)
			if had == nil {
				if !p.Static() || Allows(&policy, p.Namespace, p.NamespaceLabels, model.PrivilegeStaticPod) {
					t.Fatalf("seed %d: pod %s is missing", seed, p.UID)
				}
				continue
			}
			want := *p
			allowed := func(what model.Privilege) bool { return Allows(&policy, p.Namespace, p.NamespaceLabels, what) }
			if what := classes[p.Class]; what != "" && !allowed(what) {
				denied++
				want.Class = model.ClassLS
			}
			if what := cpus[p.Annotations.CPUs]; what != "" && !allowed(what) {
				denied++
				want.Annotations.CPUs, want.Annotations.BadCPUs = "", had.Annotations.BadCPUs
			}
			if p.Annotations.Quota == model.QuotaUnlimited && !allowed(model.PrivilegeUnlimitedQuota) {
				denied++
				want.Annotations.Quota = ""
			}
			if p.Annotations.Evict == model.EvictNever && !allowed(model.PrivilegeNeverEvict) {
				denied++
				want.Annotations.Evict = ""
			}
			if d := fixture.Diff(want, *had); d != "" {
				t.Fatalf("seed %d: (-want +got)\n%s", seed, d)
			}
			if same := fixture.Diff(before[i], *had) == ""; same != (had == p) {
				t.Fatalf("seed %d: pod %s was copied without need, or not copied", seed, p.UID)
			}
		}
		if len(notices) != denied {
			t.Fatalf("seed %d: %d notices for %d requests", seed, len(notices), denied)
		}
	}
}

func random(r *rand.Rand, uid string) *model.Pod {
	p := fixture.Pod(uid, model.Burstable)
	p.NamespaceLabels = map[string]string{"team": []string{"video", "shop"}[r.IntN(2)]}
	if r.IntN(8) == 0 {
		p.APIUID = uid + "-mirror"
	}
	p.Class = []model.Class{model.ClassLSE, model.ClassLSR, model.ClassLS, model.ClassBE, model.ClassSystem}[r.IntN(5)]
	p.Annotations.CPUs = []model.CPUMode{"", model.CPUNone, model.CPUShare, model.CPUExclusive}[r.IntN(4)]
	p.Annotations.Quota = []model.QuotaMode{"", model.QuotaKubelet, model.QuotaUnlimited}[r.IntN(3)]
	p.Annotations.Evict = []model.EvictPreference{"", model.EvictNever, model.EvictFirst}[r.IntN(3)]
	return p
}
