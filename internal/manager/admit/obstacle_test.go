package admit

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// TestObstacles lists LimitRanges and quotas for which the API server was seen to refuse batch pods, and others.
// test/e2e tries the same ones.
func TestObstacles(t *testing.T) {
	limits := func(text string) []string {
		var l corev1.LimitRange
		if err := yaml.UnmarshalStrict([]byte("spec: {limits: "+text+"}"), &l); err != nil {
			t.Fatal(err)
		}
		return LimitRangeObstacles(&l)
	}
	quota := func(text string) []string {
		var q corev1.ResourceQuota
		if err := yaml.UnmarshalStrict([]byte("spec: {"+text+"}"), &q); err != nil {
			t.Fatal(err)
		}
		return QuotaObstacles(&q)
	}
	scoped := func(expression string) []string {
		return quota(`hard: {requests.cpu: 4}, scopeSelector: {matchExpressions: [` + expression + `]}`)
	}
	for _, c := range []struct {
		name string
		got  []string
		want []string
	}{
		{"defaults", limits(`[{type: Container, default: {cpu: 1}, defaultRequest: {memory: 1Gi}}]`), nil},
		{"of claims", limits(`[{type: PersistentVolumeClaim, max: {storage: 1Gi}}]`), nil},
		{"of other resources", limits(`[{type: Container, max: {ephemeral-storage: 1Gi}}]`), nil},
		{"bounds", limits(`[{type: Container, min: {cpu: 1}, max: {cpu: 2, memory: 1Gi}}, {type: Pod, max: {memory: 4Gi}}]`),
			[]string{
				"min of cpu for each Container", "max of cpu for each Container", "max of memory for each Container",
				"max of memory for each Pod",
			}},
		{
			"a ratio", limits(`[{type: Container, maxLimitRequestRatio: {cpu: 2}}]`), []string{
				"maxLimitRequestRatio of cpu for each Container",
			},
		},
		{"batch resources", quota(`hard: {requests.waterline.io/batch-cpu: 3000, pods: 3}`), nil},
		{
			"native resources", quota(`hard: {requests.cpu: 4, limits.memory: 1Gi, memory: 1Gi, pods: 3}`), []string{
				"limits.memory", "memory", "requests.cpu",
			},
		},
		{"not BestEffort", quota(`hard: {cpu: 4}, scopes: [NotBestEffort]`), nil},
		{"not BestEffort, as a selector", scoped(`{scopeName: NotBestEffort, operator: Exists}`), nil},
		{"terminating", quota(`hard: {cpu: 4}, scopes: [Terminating]`), []string{"cpu"}},
		{"without a class", scoped(`{scopeName: PriorityClass, operator: DoesNotExist}`), nil},
		{"with a class", scoped(`{scopeName: PriorityClass, operator: Exists}`), []string{"requests.cpu"}},
		{"other classes", scoped(`{scopeName: PriorityClass, operator: In, values: [waterline-prod]}`), nil},
		{
			"a batch class", scoped(`{scopeName: PriorityClass, operator: In, values: [waterline-batch]}`),
			[]string{"requests.cpu"},
		},
		{
			"all but the batch classes",
			scoped(`{scopeName: PriorityClass, operator: NotIn, values: [waterline-batch, waterline-mid, waterline-worker]}`),
			nil,
		},
		{
			"all but the class of workers",
			scoped(`{scopeName: PriorityClass, operator: NotIn, values: [waterline-batch, waterline-mid]}`),
			[]string{"requests.cpu"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, c.got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
