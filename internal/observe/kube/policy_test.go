package kube

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

const header = "apiVersion: waterline.io/v1alpha1\nkind: ColocationPolicy\nmetadata: {name: p}\n"

func TestParsePolicy(t *testing.T) {
	p, err := ParsePolicy([]byte(header + `
spec:
  mode: Enforce
  weight: {scope: class, quota: unlimited, max: 16384, bestEffort: promote, namespaces: [{selector: {matchLabels: {team: video}}, max: 262144}]}
  pods: [{selector: {matchExpressions: [{key: app, operator: NotIn, values: [web]}]}, cpuShare: 10240, cpuManager: share, cpuPlacement: spread}]
`))
	if err != nil {
		t.Fatal(err)
	}
	if p.Mode != model.ModeEnforce || p.Weight.Scope != model.ScopeClass || p.Weight.Quota != model.QuotaUnlimited || p.Weight.Max != 16384 ||
		!p.Weight.PromoteBestEffort || p.Weight.Namespaces[0].Max != 262144 || p.Pods[0].Shares != 10240 ||
		p.Pods[0].CPUs != model.CPUShare || p.Pods[0].Placement != model.PlaceSpread {
		t.Errorf("got %+v", p)
	}
	if p, err := ParsePolicy([]byte(header + "spec: {cpu: {waterline: 62.5%}, memory: {method: static, ratio: 30%, mid: 10%}}")); err != nil ||
		p.CPU != (model.SellPolicy{Waterline: 625, Method: model.SellPredicted}) || p.Memory != (model.SellPolicy{Waterline: 800, Method: model.SellStatic, Ratio: 300, Mid: 100}) {
		t.Errorf("how slack is sold: %+v, %v", p, err)
	}
	if p, err := ParsePolicy([]byte(header + "spec: {mode: Off}")); err != nil || p.Mode != model.ModeOff {
		t.Errorf("Off without quotes: %+v, %v", p, err)
	}
	for labels, want := range map[*map[string]string]bool{{"app": "web"}: false, {"app": "db"}: true, {}: true} {
		if p.Pods[0].Selector.Matches(*labels) != want {
			t.Errorf("%v: %v", *labels, !want)
		}
	}
	if p, err := ParsePolicy([]byte(header + "spec: {}")); err != nil || p.Mode != model.ModeObserve || p.Weight.Max != model.MaxShares || p.Weight.Scope != model.ScopeNode {
		t.Errorf("defaults: %+v, %v", p, err)
	}
}

// TestBadPolicy checks that each error names the field, the value and what to do.
func TestBadPolicy(t *testing.T) {
	for _, c := range []struct{ document, want string }{
		{"apiVersion: v1\nkind: Pod", `apiVersion "v1" and kind "Pod": write waterline.io/v1alpha1`},
		{header + "spec: {mode: enforce}", `spec.mode: "enforce" cannot be used: write Observe or Enforce or Off`},
		{header + "spec: {weight: {max: 1}}", "spec.weight.max: 1 cannot be used: write shares from 2 to 262144"},
		{header + "spec: {weight: {scop: node}}", `unknown field "scop"`},
		{header + "spec: {pods: [{selector: {matchExpressions: [{key: a, operator: Is}]}, cpuShare: 5}]}", `operator "Is" cannot be used`},
		{header + "spec: {pods: [{selector: {matchExpressions: [{key: a, operator: In}]}, cpuShare: 5}]}", "In with 0 values"},
		{header + "spec: {mode: all, weight: {quota: none}}", `spec.weight.quota: "none"`},
		{header + "spec: {pods: [{selector: {}, cpuManager: alone}]}", `spec.pods[0].cpuManager: "alone" cannot be used: write none or share or exclusive`},
		{header + "spec: {pods: [{selector: {}, cpuShare: 5, cpuPlacement: spread}]}", `spec.pods[0].cpuPlacement: "spread" cannot be used: write cpuManager as well`},
		{header + "spec: {pods: [{selector: {}}]}", "spec.pods[0]: a rule that gives nothing cannot be used: write cpuShare or cpuManager"},
		{header + "spec: {cpu: {waterline: 65}}", `spec.cpu.waterline: "65" cannot be used: write a percentage from 1% to 100%`},
		{header + "spec: {cpu: {waterline: 100.1%}}", `spec.cpu.waterline: "100.1%"`},
		{header + "spec: {memory: {waterline: NaN%}}", `spec.memory.waterline: "NaN%"`},
		{header + "spec: {cpu: {method: guess}}", `spec.cpu.method: "guess" cannot be used: write predicted or realtime or static`},
		{header + "spec: {cpu: {method: static}}", `spec.cpu.ratio: "" cannot be used: write it with method static, and only there`},
		{header + "spec: {cpu: {ratio: 300%}}", `spec.cpu.ratio: "300%"`},
		{header + "spec: {memory: {method: static, ratio: 300%}}", `spec.memory.ratio: "300%" cannot be used: write a percentage from 0% to 100%`},
		{"{", "reading the policy"},
	} {
		if _, err := ParsePolicy([]byte(c.document)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.document, err, c.want)
		}
	}
}

func FuzzParsePolicy(f *testing.F) {
	f.Add([]byte(header + "spec: {mode: Enforce, weight: {max: 5}}"))
	f.Fuzz(func(t *testing.T, document []byte) {
		if p, err := ParsePolicy(document); err == nil && model.ClampShares(p.Weight.Max) != p.Weight.Max {
			t.Errorf("max %d", p.Weight.Max)
		}
	})
}

func TestParseKubelet(t *testing.T) {
	k, err := parseKubelet([]byte(`{"kubeletconfig":{"cpuCFSQuota":false,"cpuCFSQuotaPeriod":"50ms","cgroupsPerQOS":false,"cpuManagerPolicy":"static"}}`))
	if want := (model.Kubelet{Known: true, QuotaPeriod: 50_000, NoPodCgroups: true, StaticCPUs: true}); err != nil || k != want {
		t.Errorf("got %+v, %v", k, err)
	}
	if k, err := parseKubelet([]byte(`{"kubeletconfig":{}}`)); err != nil || k != DefaultKubelet() {
		t.Errorf("defaults: %+v, %v", k, err)
	}
	k, err = parseKubelet([]byte(`{"kubeletconfig":{"reservedSystemCPUs":"0,8-9","kubeReserved":{"cpu":"500m","memory":"1Gi"},"systemReserved":{"cpu":"1"}}}`))
	want := DefaultKubelet()
	want.ReservedCPUs, want.ReservedMilli, want.ReservedMemory = model.CPUs(0, 8, 9), 1500, 1<<30
	if err != nil || k != want {
		t.Errorf("reserved: %+v, %v", k, err)
	}
	for config, says := range map[string]string{
		`"reservedSystemCPUs":"0-"`:              "reservedSystemCPUs",
		`"reservedSystemCPUs":"5000"`:            "above 1023",
		`"reservedSystemCPUs":"0x2"`:             "reservedSystemCPUs",
		`"kubeReserved":{"cpu":"half"}`:          `kubeReserved: cpu: "half"`,
		`"kubeReserved":{"cpu":""}`:              `kubeReserved: cpu: ""`,
		`"systemReserved":{"cpu":"-1"}`:          "systemReserved: cpu",
		`"systemReserved":{"memory":"-1"}`:       "systemReserved: memory",
		`"kubeReserved":{"memory":"much"}`:       `kubeReserved: memory: "much"`,
		`"systemReserved":{"cpu":"9999999999E"}`: "systemReserved: cpu",
		`"systemReserved":"1"`:                   "systemReserved",
	} {
		if k, err := parseKubelet([]byte(`{"kubeletconfig":{` + config + `}}`)); err == nil || k.Known || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %+v, %v", config, k, err)
		}
	}
	for _, bad := range []string{"", "{}", "Forbidden", `{"kubeletconfig":{"cpuCFSQuota":"yes"}}`} {
		if k, err := parseKubelet([]byte(bad)); err == nil || k.Known {
			t.Errorf("%q: %+v", bad, k)
		}
	}
}

// TestManifests follows a directory through a change, a mistake and a removal.
func TestManifests(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m := NewManifests(dir, time.Millisecond, "", 2000, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { m.Run(ctx); close(done) }()
	defer func() { cancel(); <-done }()
	eventually := func(what string, holds func(Snapshot) bool) {
		t.Helper()
		for range 2000 {
			if holds(m.Snapshot()) {
				return
			}
			time.Sleep(time.Millisecond)
		}
		t.Fatalf("%s: %+v", what, m.Snapshot())
	}
	eventually("an empty directory is known", func(s Snapshot) bool { return s.Known && len(s.Pods) == 0 && s.Allocatable.CPU == 2000 })
	write("a.yaml", `
kind: Pod
metadata: {name: a, uid: a1, namespace: x, annotations: {iqiyi.com/cpu-share: "2048"}}
spec: {containers: [{name: c, resources: {limits: {cpu: "1"}}}]}
---
kind: Namespace
metadata: {name: x, labels: {team: video}}
`)
	eventually("a pod appears", func(s Snapshot) bool {
		return len(s.Pods) == 1 && s.Pods[0].Asks.Shares == 2048 && s.Pods[0].RequestMilli == 1000 && s.Pods[0].NamespaceLabels["team"] == "video"
	})
	write("b.yaml", "kind: Pod\nmetadata: {name: b}\n") // no UID
	write("c.json", `{"kind":"Pod","metadata":{"name":"c","uid":"c1"}}`)
	eventually("a mistake does not spoil the rest", func(s Snapshot) bool { return len(s.Pods) == 2 })
	write("a.yaml", "kind: Pod\nmetadata: [")
	write("d.json", `{"kind":"Pod","metadata":{"name":"d","uid":"d1"}}`)
	eventually("what a file said before stays", func(s Snapshot) bool { return len(s.Pods) == 3 && s.Pods[0].Asks.Shares == 2048 })
	write("a.yaml", "")
	write("e.json", `{"kind":"Pod","metadata":{"name":"e","uid":"e1"}}`)
	eventually("an empty file is one that is being written", func(s Snapshot) bool { return len(s.Pods) == 4 && s.Pods[0].Asks.Shares == 2048 })
	if err := os.Remove(filepath.Join(dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	eventually("a removed file is gone", func(s Snapshot) bool { return len(s.Pods) == 3 && s.Pods[0].UID == "c1" })
}

func FuzzParseKubelet(f *testing.F) {
	f.Add([]byte(`{"kubeletconfig":{"cpuCFSQuota":false,"cpuCFSQuotaPeriod":"50ms"}}`))
	f.Add([]byte(`{"kubeletconfig":{"reservedSystemCPUs":"0-1","kubeReserved":{"cpu":"500m"},"systemReserved":{"cpu":"1"}}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if k, err := parseKubelet(body); err == nil && (!k.Known || k.QuotaPeriod < 0 || k.ReservedMilli < 0) {
			t.Errorf("%q: %+v", body, k)
		}
	})
}

func FuzzParseManifests(f *testing.F) {
	f.Add([]byte("kind: Pod\nmetadata: {name: a, uid: a1}\n---\nkind: Namespace\nmetadata: {name: x}\n"))
	f.Add([]byte(`{"kind":"Pod","metadata":{"uid":"../x"}}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		pods, _, err := parseManifests(content)
		for _, p := range pods {
			if pod, ok := Pod(p, ""); err == nil && (!ok || strings.ContainsAny(pod.UID, "./")) {
				t.Errorf("%q: UID %q", content, p.UID)
			}
		}
	})
}
