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

func TestParseKubelet(t *testing.T) {
	k, err := parseKubelet([]byte(`{"kubeletconfig":{"cpuCFSQuota":false,"cpuCFSQuotaPeriod":"50ms",
		"cgroupsPerQOS":false,"cpuManagerPolicy":"static"}}`))
	if want := (model.Kubelet{Known: true, QuotaPeriod: 50_000, NoPodCgroups: true, StaticCPUs: true}); err != nil ||
		k != want {
		t.Errorf("got %+v, %v", k, err)
	}
	if k, err := parseKubelet([]byte(`{"kubeletconfig":{}}`)); err != nil || k != DefaultKubelet() {
		t.Errorf("defaults: %+v, %v", k, err)
	}
	// Up to 1.36 the factor has a default, and from 1.36 on the policy; from 1.37 on the gate is on by default.
	const factor, none, tiered = `"memoryThrottlingFactor":0.9,`, `"memoryReservationPolicy":"None",`,
		`"memoryReservationPolicy":"TieredReservation",`
	for config, on := range map[string]bool{
		factor + `"featureGates":{"MemoryQoS":true}`:                  true,
		factor + `"featureGates":{"MemoryQoS":false,"AllAlpha":true}`: false,
		factor + `"featureGates":{"AllAlpha":true}`:                   true,
		factor + `"featureGates":{"Other":true}`:                      false,
		factor + none + `"featureGates":{"MemoryQoS":true}`:           true,
		factor + none + `"featureGates":{}`:                           false,
		none + `"featureGates":{}`:                                    false,
		none + `"featureGates":{"MemoryQoS":true}`:                    false,
		none + `"featureGates":{"AllAlpha":true}`:                     false,
		tiered + `"featureGates":{}`:                                  true,
		tiered + `"featureGates":{"MemoryQoS":true}`:                  true,
	} {
		if k, err := parseKubelet([]byte(`{"kubeletconfig":{` + config + `}}`)); err != nil || k.MemoryQoS != on {
			t.Errorf("%s: %+v, %v", config, k, err)
		}
	}
	k, err = parseKubelet([]byte(`{"kubeletconfig":{"reservedSystemCPUs":"0,8-9",
		"kubeReserved":{"cpu":"500m","memory":"1Gi"},"systemReserved":{"cpu":"1"}}}`))
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
		if k, err := parseKubelet([]byte(`{"kubeletconfig":{` + config + `}}`)); err == nil || k.Known ||
			!strings.Contains(err.Error(), says) {
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
	eventually := func(what string, holds func(model.Snapshot) bool) {
		t.Helper()
		for range 2000 {
			if holds(m.Snapshot()) {
				return
			}
			time.Sleep(time.Millisecond)
		}
		t.Fatalf("%s: %+v", what, m.Snapshot())
	}
	eventually("an empty directory is known",
		func(s model.Snapshot) bool { return s.Known && len(s.Pods) == 0 && s.Allocatable.CPU == 2000 })
	write("a.yaml", `
kind: Pod
metadata: {name: a, uid: a1, namespace: x, annotations: {iqiyi.com/cpu-share: "2048"}}
spec: {containers: [{name: c, resources: {limits: {cpu: "1"}}}]}
---
kind: Namespace
metadata: {name: x, labels: {team: video}}
`)
	eventually("a pod appears", func(s model.Snapshot) bool {
		return len(s.Pods) == 1 && s.Pods[0].Annotations.Shares == 2048 && s.Pods[0].RequestMilli == 1000 &&
			s.Pods[0].NamespaceLabels["team"] == "video"
	})
	write("b.yaml", "kind: Pod\nmetadata: {name: b}\n") // no UID
	write("c.json", `{"kind":"Pod","metadata":{"name":"c","uid":"c1"}}`)
	eventually("a mistake does not spoil the rest", func(s model.Snapshot) bool { return len(s.Pods) == 2 })
	write("a.yaml", "kind: Pod\nmetadata: [")
	write("d.json", `{"kind":"Pod","metadata":{"name":"d","uid":"d1"}}`)
	eventually("what a file said before stays",
		func(s model.Snapshot) bool { return len(s.Pods) == 3 && s.Pods[0].Annotations.Shares == 2048 })
	write("a.yaml", "")
	write("e.json", `{"kind":"Pod","metadata":{"name":"e","uid":"e1"}}`)
	eventually("an empty file is one that is being written",
		func(s model.Snapshot) bool { return len(s.Pods) == 4 && s.Pods[0].Annotations.Shares == 2048 })
	if err := os.Remove(filepath.Join(dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	eventually("a removed file is gone", func(s model.Snapshot) bool { return len(s.Pods) == 3 && s.Pods[0].UID == "c1" })
}

func FuzzParseKubelet(f *testing.F) {
	f.Add([]byte(`{"kubeletconfig":{"cpuCFSQuota":false,"cpuCFSQuotaPeriod":"50ms"}}`))
	f.Add([]byte(`{"kubeletconfig":{"reservedSystemCPUs":"0-1",
		"kubeReserved":{"cpu":"500m"},"systemReserved":{"cpu":"1"}}}`))
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
