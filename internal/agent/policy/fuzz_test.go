package policy

import (
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/decide/node"
	"github.com/waterline-io/waterline/internal/decide/policy"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/kube"
	"github.com/waterline-io/waterline/test/fixture"
)

const policyHeader = "apiVersion: waterline.io/v1alpha1\nkind: ColocationPolicy\nmetadata: {name: p}\n"

// FuzzPolicy takes any document through all stages of a policy: it is read, chosen, evaluated at a time, and used for a
// decision. A document that cannot be used is refused with the name of the wrong field.
func FuzzPolicy(f *testing.F) {
	for _, spec := range []string{
		"spec: {}",
		"spec: {mode: Enforce, cpu: {}, memory: {}}",
		"spec: {mode: Enforce, priority: -3, nodeSelector: {matchLabels: {pool: web}}, rollout: {nodes: 100%}, " +
			"cpu: {method: Realtime, waterline: 100%, mid: 10%}, memory: {method: Static, ratio: 30%}}",
		`spec: {mode: Enforce, windows: [{name: night, start: "22:00", end: "09:00", timeZone: UTC, drainBefore: 15m}, ` +
			`{name: noon, start: "12:00", end: "13:00", timeZone: Asia/Shanghai}], cpu: {method: Static, ratio: 300%}}`,
		`spec: {mode: Enforce, windows: [{name: all, start: "00:00", end: "00:00", timeZone: UTC}], memory: {}}`,
		"spec: {mode: Observe, weight: {scope: Class, quota: Unlimited, max: 16384, " +
			"namespaces: [{selector: {matchLabels: {team: a}}, max: 262144}]}}",
		"spec: {mode: Enforce, podDefaults: [{selector: {matchExpressions: [{key: app, " +
			"operator: NotIn, values: [web]}]}, cpuShare: 2, cpuManager: Exclusive, cpuPlacement: Spread}]}",
		"spec: {mode: Enforce, memory: {}, protect: {eviction: {}}}",
		"spec: {mode: Disabled, protect: {burst: false, interference: true, eviction: {perNodePerHour: 0}}, " +
			"batchPods: [{selector: {}, owners: 30%, tier: Mid}]}",
		"spec: {mode: Enforce, memory: {}, protect: {memory: true, eviction: {}}}",
		`spec: {mode: enforce, rollout: {}, weight: {max: 1}, windows: [{name: N, start: "24:00", end: x, timeZone: Local, ` +
			`drainBefore: 24h}], cpu: {waterline: 0%, method: guess, ratio: 1%}, pods: [{}]}`,
		"spec: {nodeSelector: {matchExpressions: [{key: a b, operator: Is, values: [c d]}]}, batch: [{percent: 101}]}",
	} {
		f.Add([]byte(policyHeader+spec), int64(1_790_000_000))
	}
	f.Add([]byte(`{"apiVersion":"waterline.io/v1alpha1","kind":"ColocationPolicy","spec":{"mode":"Enforce"}}`), int64(-1))
	f.Fuzz(func(t *testing.T, document []byte, second int64) {
		p, err := kube.ParsePolicy(document)
		if err != nil {
			names(t, err)
			return
		}
		now := time.Unix(second%(1<<36), 0) // from one ice age to the next
		node := policy.Node{UID: "7f3c", Labels: map[string]string{"pool": "web"}}
		for _, labels := range []map[string]string{node.Labels, nil, {"waterline.io/opt-out": "true"}} {
			node.Labels, node.OptedOut = labels, kube.OptedOut(&model.NodeInfo{Labels: labels})
			choice := policy.Choose(node, []model.ClusterPolicy{p, {Name: "zz", Rollout: 50, Policy: fixture.Policy()}})
			effect := policy.At(&choice.Policy, now)
			if !effect.Next.IsZero() && !effect.Next.After(now) {
				t.Errorf("at %s %s until %s", now, effect.Selling, effect.Next)
			}
			if effect.Selling != model.SellOpen && (effect.Policy.CPU.Method != "" || effect.Policy.Memory.Method != "") {
				t.Errorf("%s, and sold: %+v", effect.Selling, effect.Policy)
			}
			decideBy(t, effect.Policy, now)
		}
	})
}

// names checks that an error names the wrong field, or reports that the text is no document.
func names(t *testing.T, err error) {
	t.Helper()
	text := err.Error()
	if strings.HasPrefix(text, "reading the policy: ") {
		return
	}
	_, fields, _ := strings.Cut(text, ": ")
	for line := range strings.Lines(fields) {
		if !strings.HasPrefix(line, "spec.") || !strings.Contains(line, " cannot be used: ") {
			t.Errorf("%q names no field", line)
		}
	}
}

// decideBy decides twice about a node with two running pods, one of them batch.
func decideBy(t *testing.T, p model.Policy, now time.Time) {
	t.Helper()
	n := fixture.Node(model.Amount{CPU: 8000, Memory: 32 << 30})
	n.Now, n.Allocatable = now, model.Amount{CPU: 7000, Memory: 30 << 30}
	web := fixture.Pod("web", model.Burstable)
	web.Class, web.RequestMilli, web.Annotations.Shares = model.ClassLS, 2000, 4096
	fixture.Run(&n, web)
	fixture.Run(&n, fixture.BatchPod("job", model.Amount{CPU: 1000, Memory: 1 << 30}))
	const at = time.Hour
	n.Load = &model.Load{Clock: at, CPUMilli: 8000, Memory: 32 << 30, Node: fixture.Usage(at, 3000, 8<<30)}
	n.Load.Classes[model.Guaranteed] = fixture.Usage(at, 2500, 6<<30)
	fixture.Measure(n.Load, "job", fixture.Usage(at, 500, 1<<30))
	fixture.Measure(n.Load, "web", fixture.Usage(at, 2000, 5<<30))
	var state node.State
	for range 2 {
		var plan model.Plan
		plan, state = node.Decide(n, p, state)
		for _, r := range plan.Publish.Resources {
			if r.Amount <= 0 {
				t.Errorf("%+v stands there", r)
			}
		}
		for _, s := range plan.Settings {
			if s.Knob == model.Shares && (s.Value.Number < model.MinShares || s.Value.Number > model.MaxShares) {
				t.Errorf("%+v is no weight", s)
			}
		}
	}
}
